-- `complete`: records the outcome. Answers as `transition/holder.rs` does.
--
-- Answers: 0 completed, 1 already, 2 late, 3 alarm, 4 fenced, 8 another transaction has it, 9 damaged. A stored body
-- is handed back where an answer rests on it, so that the caller can check it. `until` is when the record expires, if
-- its body had to stay in the row because that day has no partition yet.

CREATE FUNCTION complete_one(
    asked_id bytea, asked_owner uuid, asked_fence bigint, asked_retention bigint, asked_version integer,
    asked_kept smallint, asked_head bytea, asked_sum integer, asked_body bytea, careful boolean, at bigint
) RETURNS answer LANGUAGE plpgsql AS $$
DECLARE
    r records;
    a answer;
    now bigint;
    stored bytea;
BEGIN
    r := take(asked_id, careful);
    a.kind := 2;
    now := clock(at);
    IF r.state = 8 THEN
        a.answer := 8;
    ELSIF r.id IS NULL THEN
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
        r := keep_body(r, asked_body, asked_sum, now);
        PERFORM put_and_wake(r, now);
        a.answer := 0;
        a.until := missed_day(asked_body, r.body_day, r.due_at);
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

-- When a record expires whose body should lie in a partition and does not.
CREATE FUNCTION missed_day(body bytea, body_day integer, due_at bigint) RETURNS bigint LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE WHEN body_day IS NULL AND octet_length(body) > inline_max() THEN due_at END
$$;

-- Many completions, of different records and in the order of their ids, so that two calls cannot wait for each other.
-- `careful`: what another transaction holds is answered 8, and the others are not held up.
CREATE FUNCTION complete(
    ids bytea[], owners uuid[], asked_fences bigint[], retentions bigint[], versions integer[], kepts smallint[],
    heads bytea[], sums integer[], asked_bodies bytea[], patience integer DEFAULT NULL,
    careful boolean DEFAULT false, at bigint DEFAULT NULL
) RETURNS SETOF answer LANGUAGE plpgsql
SET search_path FROM CURRENT SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET enable_bitmapscan = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    now bigint;
    done bigint[];
    done_ids bytea[];
    missed bigint[];
    is_placed boolean;
    a answer;
BEGIN
    PERFORM begin_command(patience);
    IF NOT careful THEN
        -- What is in flight may be completed at any time, so no guard here rests on the clock, and it may be read
        -- before the rows are locked: it is when the caller asked.
        now := clock(at);
        WITH written AS (
            UPDATE records r SET
                state = 1, completed_by = 0, since = now, due_at = now + coalesce(i.retention, r.retention),
                content_version = i.content_version, kept = i.kept, head = i.head, body_sum = i.sum,
                body = CASE WHEN place_of(i.body, now + coalesce(i.retention, r.retention), now) IS NULL THEN i.body END,
                body_day = place_of(i.body, now + coalesce(i.retention, r.retention), now),
                mark = mark(
                    r.id, 1::smallint, r.fence, r.attempt, r.owner, r.fingerprint, r.created_at, r.granted_at,
                    r.run_until, now + coalesce(i.retention, r.retention), now, r.retention, r.unknown_retention,
                    r.remote, 0::smallint, i.content_version, i.kept, i.head, i.sum,
                    place_of(i.body, now + coalesce(i.retention, r.retention), now),
                    r.recovery_owner, r.recovery_until, r.late, r.step_names, r.step_values)
            FROM unnest(ids, owners, asked_fences, retentions, versions, kepts, heads, sums, asked_bodies)
                WITH ORDINALITY AS i (id, owner, fence, retention, content_version, kept, head, sum, body, item)
            WHERE r.id = i.id AND r.owner = i.owner AND r.fence = i.fence AND r.state = 0 AND r.mark = mark_of(r)
            RETURNING r.id, i.item, r.body_day, missed_day(i.body, r.body_day, r.due_at) AS missed
        )
        SELECT array_agg(w.item), array_agg(w.id), array_agg(w.missed), bool_or(w.body_day IS NOT NULL)
        INTO done, done_ids, missed, is_placed FROM written w;
    END IF;
    IF done IS NOT NULL THEN
        IF is_placed THEN
            INSERT INTO bodies
            SELECT r.body_day, r.fence, r.id, i.body
            FROM unnest(ids, asked_bodies) AS i (id, body) JOIN records r ON r.id = i.id
            WHERE r.body_day IS NOT NULL AND i.id = ANY (done_ids)
            ON CONFLICT (day, fence, id) DO UPDATE SET body = excluded.body;
        END IF;
        PERFORM wake(done_ids, now);
        RETURN QUERY
            SELECT 2::bigint, i.item, 0::bigint, NULL::bigint, NULL::bigint, NULL::bigint, NULL::bigint,
                i.missed, NULL::bigint, NULL::bigint, NULL::bigint, NULL::bigint, NULL::bytea, NULL::bytea,
                NULL::bytea, NULL::text[], NULL::bytea[]
            FROM unnest(done, missed) AS i (item, missed);
    END IF;
    IF done IS NULL OR cardinality(done) < cardinality(ids) THEN
        FOR n IN 1 .. cardinality(ids) LOOP
            CONTINUE WHEN n = ANY (done);
            a := complete_one(
                ids[n], owners[n], asked_fences[n], retentions[n], versions[n], kepts[n], heads[n], sums[n],
                asked_bodies[n], careful, at);
            a.item := n;
            RETURN NEXT a;
        END LOOP;
    END IF;
END
$$;
