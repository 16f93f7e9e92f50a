-- `claim`: the one atomic attempt to become the owner. Answers as `transition/claim.rs` does.
--
-- Answers: 0 granted, 1 replay, 2 busy, 3 held, 4 mismatch, 5 recover, 6 fenced, 9 damaged.

-- What a claim is answered that changes nothing; NULL when it may have to write. Needs no row lock: a record that
-- is read without one is answered as it was at that instant.
CREATE FUNCTION claim_reads(r records, asked_fingerprint bytea, asked_owner uuid, now bigint) RETURNS answer
LANGUAGE plpgsql AS $$
DECLARE
    a answer;
BEGIN
    a.kind := 1;
    a.at := now;
    IF r.mark <> mark_of(r) THEN
        a.answer := 9;
    ELSIF r.state <> 0 AND r.due_at <= now THEN
        NULL; -- Expired: reads as absent.
    ELSIF r.fingerprint <> asked_fingerprint THEN
        a.answer := 4;
        a.fingerprint := r.fingerprint;
    ELSIF r.state = 0 AND now < r.due_at THEN
        IF r.owner = asked_owner THEN
            a.answer := 0;
            a.fence := r.fence;
            a.attempt := r.attempt;
            a.step_names := r.step_names;
            a.step_values := r.step_values;
        ELSE
            a.answer := 2;
            a.until := r.due_at;
        END IF;
    ELSIF r.state = 1 THEN
        a.answer := 1;
        a.fence := r.fence;
        a.attempt := r.attempt;
        a.since := r.since;
        a.until := r.due_at;
        a.completed_by := r.completed_by;
        a.content_version := r.content_version;
        a.kept := r.kept;
        a.body_sum := r.body_sum;
        a.head := r.head;
        a.body := body_of(r);
    ELSIF r.state = 3 AND now < r.recovery_until THEN
        -- While someone finds out, nothing may start, whatever the policy of this claim.
        IF r.recovery_owner = asked_owner THEN
            RETURN recovering(r, now);
        END IF;
        a.answer := 2;
        a.until := r.recovery_until;
    END IF;
    RETURN a;
END
$$;

CREATE FUNCTION recovering(r records, now bigint) RETURNS answer LANGUAGE plpgsql AS $$
DECLARE
    a answer;
BEGIN
    a.kind := 1;
    a.at := now;
    a.answer := 5;
    a.fence := r.fence;
    a.attempt := r.attempt;
    a.until := r.run_until;
    a.step_names := r.step_names;
    a.step_values := r.step_values;
    RETURN a;
END
$$;

-- A grant on top of `seen`, which is empty but for its id and fence when there is nothing to build on.
CREATE FUNCTION granted(
    seen records, asked_fingerprint bytea, asked_owner uuid, t terms, now bigint
) RETURNS records LANGUAGE plpgsql AS $$
DECLARE
    r records;
BEGIN
    r.id := seen.id;
    r.state := 0;
    r.fence := greatest(seen.fence + 1, nextval('fences'));
    r.attempt := least(coalesce(seen.attempt, 0) + 1, 4294967295);
    r.owner := asked_owner;
    r.fingerprint := asked_fingerprint;
    r.created_at := coalesce(seen.created_at, now);
    r.granted_at := now;
    r.run_until := now + t.run_max;
    r.due_at := least(r.run_until, now + t.lease);
    r.retention := t.retention;
    r.unknown_retention := t.unknown_retention;
    r.remote := t.remote;
    -- Steps belong to one request: when the fingerprint was forgotten, so is what that request recorded.
    IF seen.fingerprint IS NOT NULL THEN
        r.step_names := seen.step_names;
        r.step_values := seen.step_values;
    END IF;
    RETURN r;
END
$$;

CREATE FUNCTION sealed(r records, t terms, now bigint) RETURNS records LANGUAGE plpgsql AS $$
BEGIN
    r.state := 1;
    r.completed_by := 1;
    r.since := now;
    -- Sealing must not shorten how long an unknown outcome protects its key.
    r.due_at := greatest(now + r.retention, r.due_at);
    r.content_version := t.sealed_version;
    r.kept := t.sealed_kept;
    r.head := t.sealed_head;
    r.late := NULL;
    r.recovery_owner := NULL;
    r.recovery_until := NULL;
    RETURN keep_body(r, t.sealed_body, t.sealed_sum, now);
END
$$;

-- One claim that may have to write, under the lock of its row.
CREATE FUNCTION claim_one(
    asked_id bytea, asked_fingerprint bytea, asked_owner uuid, t terms, at bigint
) RETURNS answer LANGUAGE plpgsql AS $$
DECLARE
    r records;
    next records;
    a answer;
    now bigint;
    lapsed boolean;
BEGIN
    LOOP
        SELECT * INTO r FROM records WHERE id = asked_id FOR UPDATE;
        EXIT WHEN FOUND;
        r.id := asked_id;
        r.fence := 0;
        now := clock(at);
        r := granted(r, asked_fingerprint, asked_owner, t, now);
        r.mark := mark_of(r);
        INSERT INTO records SELECT r.* ON CONFLICT (id) DO NOTHING;
        IF FOUND THEN
            RETURN claim_reads(r, asked_fingerprint, asked_owner, now);
        END IF;
        -- Another insert was first and was not to be seen: look again.
    END LOOP;
    now := clock(at);
    a := claim_reads(r, asked_fingerprint, asked_owner, now);
    IF a.answer IS NOT NULL THEN
        RETURN a;
    END IF;
    IF r.state <> 0 AND r.due_at <= now THEN
        -- Expired: as if absent, but that its fence still counts.
        next.id := r.id;
        next.fence := r.fence;
        RETURN claim_grants(r, next, asked_fingerprint, asked_owner, t, now, false);
    END IF;
    IF r.state = 2 THEN
        RETURN claim_grants(r, r, asked_fingerprint, asked_owner, t, now, false);
    END IF;
    lapsed := r.state = 0;
    IF lapsed THEN
        r := lapse(r, now);
    END IF;
    RETURN claim_unknown(r, lapsed, asked_fingerprint, asked_owner, t, now);
END
$$;

-- The UNKNOWN row of the table: by policy.
CREATE FUNCTION claim_unknown(
    r records, lapsed boolean, asked_fingerprint bytea, asked_owner uuid, t terms, now bigint
) RETURNS answer LANGUAGE plpgsql AS $$
DECLARE
    a answer;
BEGIN
    IF t.policy = 3 AND r.attempt < t.attempts_max THEN
        RETURN claim_grants(r, r, asked_fingerprint, asked_owner, t, now, lapsed);
    END IF;
    IF t.policy = 1 OR (t.policy IN (0, 3) AND now >= r.since + t.hold_for) THEN
        r := sealed(r, t, now);
        PERFORM put(r);
        PERFORM wake(ARRAY[r.id]);
        r.mark := mark_of(r);
        RETURN claim_reads(r, asked_fingerprint, asked_owner, now);
    END IF;
    IF t.policy = 2 THEN
        r.recovery_owner := asked_owner;
        r.recovery_until := now + t.lease;
        PERFORM put(r);
        PERFORM wake(ARRAY[r.id]);
        RETURN recovering(r, now);
    END IF;
    IF lapsed THEN
        PERFORM put(r);
        PERFORM wake(ARRAY[r.id]);
    END IF;
    a.kind := 1;
    a.at := now;
    a.answer := 3;
    a.fence := r.fence;
    a.since := r.since;
    RETURN a;
END
$$;

-- A grant on top of `seen` in place of `r`. An owner is for one attempt, so a claim that arrives a second time after
-- its grant was lost starts nothing.
CREATE FUNCTION claim_grants(
    r records, seen records, asked_fingerprint bytea, asked_owner uuid, t terms, now bigint, lapsed boolean
) RETURNS answer LANGUAGE plpgsql AS $$
DECLARE
    a answer;
    granted_now records;
BEGIN
    IF seen.owner = asked_owner OR r.fence >= 9007199254740991 THEN
        IF lapsed THEN
            PERFORM put(r);
            PERFORM wake(ARRAY[r.id]);
        END IF;
        a.kind := 1;
            a.at := now;
        a.answer := CASE WHEN seen.owner = asked_owner THEN 6 ELSE 3 END;
        a.fence := r.fence;
        a.since := now;
        RETURN a;
    END IF;
    granted_now := granted(seen, asked_fingerprint, asked_owner, t, now);
    PERFORM put(granted_now);
    PERFORM wake(ARRAY[r.id]);
    granted_now.mark := mark_of(granted_now);
    RETURN claim_reads(granted_now, asked_fingerprint, asked_owner, now);
END
$$;

-- Many claims in the order of their ids, so that two calls cannot wait for each other. Several of one record are
-- answered as one after the other would be. `term_of` says by its position which of the terms a claim is under.
CREATE FUNCTION claim(
    ids bytea[], fingerprints bytea[], owners uuid[], term_of integer[],
    leases bigint[], run_maxes bigint[], retentions bigint[], unknown_retentions bigint[], policies smallint[],
    attempts_maxes bigint[], hold_fors bigint[], remotes boolean[], sealed_versions integer[], sealed_heads bytea[],
    sealed_kepts smallint[], sealed_sums integer[], sealed_bodies bytea[],
    patience integer DEFAULT NULL, at bigint DEFAULT NULL
) RETURNS SETOF answer LANGUAGE plpgsql
SET search_path FROM CURRENT SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET enable_bitmapscan = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    present integer[];
    undecided integer[];
    fresh_items bigint[];
    fresh_fences bigint[];
    item record;
    a answer;
    now bigint;
    t terms;
BEGIN
    PERFORM begin_command(patience);
    now := clock(at);
    -- What is there. Most of it is answered without a lock.
    FOR item IN
        SELECT i.position, i.fingerprint, i.owner, r AS stored
        FROM unnest(ids, fingerprints, owners) WITH ORDINALITY AS i (id, fingerprint, owner, position)
        JOIN records r ON r.id = i.id
    LOOP
        present := present || item.position::integer;
        a := claim_reads(item.stored, item.fingerprint, item.owner, now);
        a.item := item.position;
        IF a.answer IS NULL THEN
            undecided := undecided || item.position::integer;
        ELSE
            RETURN NEXT a;
        END IF;
    END LOOP;
    -- What is not there, all at once.
    IF coalesce(cardinality(present), 0) < cardinality(ids) THEN
        WITH fresh AS (
            SELECT i.*, nextval('fences') AS fence
            FROM unnest(ids, fingerprints, owners, term_of) WITH ORDINALITY
                AS i (id, fingerprint, owner, term, position)
            WHERE present IS NULL OR i.position <> ALL (present)
        ), inserted AS (
            INSERT INTO records AS r (
                id, state, fence, attempt, owner, fingerprint, created_at, granted_at, run_until, due_at,
                retention, unknown_retention, remote, mark)
            SELECT f.id, 0, f.fence, 1, f.owner, f.fingerprint, now, now, now + run_maxes[f.term],
                now + least(run_maxes[f.term], leases[f.term]), retentions[f.term], unknown_retentions[f.term],
                remotes[f.term], mark(
                    f.id, 0::smallint, f.fence, 1, f.owner, f.fingerprint, now, now, now + run_maxes[f.term],
                    now + least(run_maxes[f.term], leases[f.term]), NULL, retentions[f.term],
                    unknown_retentions[f.term], remotes[f.term],
                    NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL)
            FROM fresh f
            ON CONFLICT (id) DO NOTHING
            RETURNING r.id, r.fence
        )
        SELECT array_agg(array_position(ids, inserted.id)::bigint), array_agg(inserted.fence)
        INTO fresh_items, fresh_fences FROM inserted;
        RETURN QUERY
            SELECT 1::bigint, i.item, 0::bigint, i.fence, 1::bigint, now, NULL::bigint, NULL::bigint,
                NULL::bigint, NULL::bigint, NULL::bigint, NULL::bigint, NULL::bytea, NULL::bytea, NULL::bytea,
                NULL::text[], NULL::bytea[]
            FROM unnest(fresh_items, fresh_fences) AS i (item, fence);
        -- What another call inserted meanwhile, and further claims of what this one did.
        IF coalesce(cardinality(present), 0) + coalesce(cardinality(fresh_items), 0) < cardinality(ids) THEN
            undecided := undecided || ARRAY(
                SELECT i.position::integer FROM unnest(ids) WITH ORDINALITY AS i (id, position)
                WHERE (present IS NULL OR i.position <> ALL (present))
                    AND (fresh_items IS NULL OR i.position <> ALL (fresh_items)));
        END IF;
    END IF;
    -- What has to be written over, one by one under its lock.
    FOR item IN SELECT i.position FROM unnest(undecided) AS i (position) ORDER BY i.position LOOP
        SELECT leases[n], run_maxes[n], retentions[n], unknown_retentions[n], policies[n], attempts_maxes[n],
            hold_fors[n], remotes[n], sealed_versions[n], sealed_heads[n], sealed_kepts[n], sealed_sums[n],
            sealed_bodies[n]
        INTO t FROM (SELECT term_of[item.position] AS n) AS term;
        a := claim_one(ids[item.position], fingerprints[item.position], owners[item.position], t, at);
        a.item := item.position;
        RETURN NEXT a;
    END LOOP;
END
$$;
