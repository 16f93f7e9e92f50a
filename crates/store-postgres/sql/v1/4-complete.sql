-- `complete`: records the outcome. Answers as `transition/holder.rs` does.
--
-- Answers: 0 completed, 1 already, 2 late, 3 alarm, 4 fenced, 9 damaged. A stored body
-- is handed back where an answer rests on it, so that the caller can check it.

CREATE FUNCTION complete_one(
    asked_id bytea, asked_owner uuid, asked_fence bigint, asked_retention bigint, asked_version integer,
    asked_kept smallint, asked_head bytea, asked_sum integer, asked_body bytea, at bigint
) RETURNS answer LANGUAGE plpgsql AS $$
DECLARE
    r records;
    a answer;
    now bigint;
    stored bytea;
BEGIN
    SELECT * INTO r FROM records WHERE id = asked_id FOR UPDATE;
    a.kind := 2;
    now := clock(at);
    IF NOT FOUND THEN
        a.answer := 4;
    ELSIF r.mark <> mark_of(r) THEN
        a.answer := 9;
    ELSIF r.owner <> asked_owner OR r.fence <> asked_fence OR (r.state <> 0 AND r.due_at <= now) OR r.state = 2 THEN
        a.answer := 4;
    ELSIF r.state IN (0, 3) THEN
        r.state := 1;
        r.completed_by := 0;
        r.since := now;
        r.due_at := now + coalesce(asked_retention, r.retention);
        r.content_version := asked_version;
        r.kept := asked_kept;
        r.head := asked_head;
        r.recovery_owner := NULL;
        r.recovery_until := NULL;
        PERFORM put(keep_body(r, asked_body, asked_sum, now));
        PERFORM wake(ARRAY[asked_id]);
        a.answer := 0;
    ELSE
        stored := body_of(r);
        IF (r.content_version = asked_version AND r.kept = asked_kept AND r.head = asked_head
                AND stored IS NOT DISTINCT FROM asked_body) OR (r.completed_by = 0 AND r.kept = 3) THEN
            a.answer := 1;
            RETURN a;
        END IF;
        a.kept := r.kept;
        a.body_sum := r.body_sum;
        a.body := stored;
        a.answer := CASE WHEN r.completed_by = 0 THEN 3 ELSE 2 END;
        -- One late outcome is kept, and none once the record was erased: that would bring the body back.
        IF r.completed_by <> 0 AND r.late IS NULL AND r.kept <> 3 THEN
            r.late := int4send(asked_version) || int2send(asked_kept) || int2send(octet_length(asked_head)::smallint)
                || int4send(coalesce(asked_sum, 0)) || asked_head || coalesce(asked_body, '');
            PERFORM put(r);
        END IF;
    END IF;
    RETURN a;
END
$$;

-- Many completions, of different records and in the order of their ids.
CREATE FUNCTION complete(
    ids bytea[], owners uuid[], asked_fences bigint[], retentions bigint[], versions integer[], kepts smallint[],
    heads bytea[], sums integer[], asked_bodies bytea[], patience integer DEFAULT NULL, at bigint DEFAULT NULL
) RETURNS SETOF answer LANGUAGE plpgsql
SET search_path FROM CURRENT SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET enable_bitmapscan = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    now bigint;
    done bigint[];
    done_ids bytea[];
    days integer[];
    a answer;
BEGIN
    PERFORM begin_command(patience);
    -- In one order, so that two calls cannot wait for each other; and before the clock is read.
    PERFORM 1 FROM unnest(ids) WITH ORDINALITY AS i (id, position) JOIN records r ON r.id = i.id
        ORDER BY i.position FOR UPDATE OF r;
    now := clock(at);
    WITH written AS (
        UPDATE records r SET
            state = 1, completed_by = 0, since = now, due_at = now + coalesce(i.retention, r.retention),
            content_version = i.content_version, kept = i.kept, head = i.head, body_sum = i.sum,
            recovery_owner = NULL, recovery_until = NULL,
            body = CASE WHEN i.large IS NULL THEN i.body END,
            body_day = i.large * day_of(now + coalesce(i.retention, r.retention), now),
            mark = mark(
                r.id, 1::smallint, r.fence, r.attempt, r.owner, r.fingerprint, r.created_at, r.granted_at,
                r.run_until, now + coalesce(i.retention, r.retention), now, r.retention, r.unknown_retention,
                r.remote, 0::smallint, i.content_version, i.kept, i.head, i.sum,
                i.large * day_of(now + coalesce(i.retention, r.retention), now),
                NULL, NULL, r.late, r.step_names, r.step_values)
        FROM (
            SELECT n.*, CASE WHEN octet_length(n.body) > inline_max() THEN 1 END AS large
            FROM unnest(ids, owners, asked_fences, retentions, versions, kepts, heads, sums, asked_bodies)
                WITH ORDINALITY AS n (id, owner, fence, retention, content_version, kept, head, sum, body, item)
        ) AS i
        WHERE r.id = i.id AND r.owner = i.owner AND r.fence = i.fence
            AND (r.state = 0 OR (r.state = 3 AND r.due_at > now)) AND r.mark = mark_of(r)
        RETURNING r.id, i.item, r.body_day
    )
    SELECT array_agg(w.item), array_agg(w.id), array_agg(DISTINCT w.body_day) FILTER (WHERE w.body_day IS NOT NULL)
    INTO done, done_ids, days FROM written w;
    IF done IS NOT NULL THEN
        IF days IS NOT NULL THEN
            PERFORM make_day(d.day) FROM unnest(days) AS d (day) ORDER BY d.day;
            INSERT INTO bodies
            SELECT r.body_day, r.fence, r.id, i.body
            FROM unnest(ids, asked_bodies) AS i (id, body) JOIN records r ON r.id = i.id
            WHERE octet_length(i.body) > inline_max() AND i.id = ANY (done_ids);
        END IF;
        PERFORM wake(done_ids);
        RETURN QUERY
            SELECT 2::bigint, i.item, 0::bigint, NULL::bigint, NULL::bigint, NULL::bigint, NULL::bigint,
                NULL::bigint, NULL::bigint, NULL::bigint, NULL::bigint, NULL::bigint, NULL::bytea, NULL::bytea, NULL::bytea,
                NULL::text[], NULL::bytea[]
            FROM unnest(done) AS i (item);
    END IF;
    IF coalesce(cardinality(done), 0) < cardinality(ids) THEN
        FOR n IN 1 .. cardinality(ids) LOOP
            CONTINUE WHEN n = ANY (done);
            a := complete_one(
                ids[n], owners[n], asked_fences[n], retentions[n], versions[n], kepts[n], heads[n], sums[n],
                asked_bodies[n], at);
            a.item := n;
            RETURN NEXT a;
        END LOOP;
    END IF;
END
$$;
