-- `claim`: the one atomic attempt to become the owner. Answers as `transition/claim.rs` does.
--
-- Answers: 0 granted, 1 replay, 2 busy, 3 held, 4 mismatch, 5 recover, 6 fenced, 8 another transaction has it, 9 damaged.

-- What a claim is answered that changes nothing; NULL when it may have to write. Needs no row lock: a record that
-- is read without one is answered as it was at that instant. `taken`: the row is locked.
CREATE FUNCTION claim_reads(r records, asked_fingerprint bytea, asked_owner uuid, taken boolean, now bigint)
RETURNS answer LANGUAGE plpgsql AS $$
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
        IF a.body IS NULL AND r.body_day IS NOT NULL AND NOT taken THEN
            -- Its body went after the row was read: erased, resolved or swept. The row says what is there now.
            a.answer := NULL;
        END IF;
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

-- The beginning of every answer to a claim.
CREATE FUNCTION claim_says(said bigint, fence bigint, now bigint) RETURNS answer LANGUAGE plpgsql AS $$
DECLARE
    a answer;
BEGIN
    a.kind := 1;
    a.answer := said;
    a.fence := fence;
    a.at := now;
    RETURN a;
END
$$;

CREATE FUNCTION recovering(r records, now bigint) RETURNS answer LANGUAGE plpgsql AS $$
DECLARE
    a answer := claim_says(5, r.fence, now);
BEGIN
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
    asked_id bytea, asked_fingerprint bytea, asked_owner uuid, t terms, careful boolean, at bigint
) RETURNS answer LANGUAGE plpgsql AS $$
DECLARE
    r records;
    seen records;
    a answer;
    now bigint;
    lapsed boolean;
BEGIN
    LOOP
        r := take(asked_id, careful);
        IF r.state = 8 THEN
            RETURN claim_says(8, NULL, NULL);
        END IF;
        EXIT WHEN r.id IS NOT NULL;
        r.id := asked_id;
        r.fence := 0;
        now := clock(at);
        r := granted(r, asked_fingerprint, asked_owner, t, now);
        r.mark := mark_of(r);
        INSERT INTO records SELECT r.* ON CONFLICT (id) DO NOTHING;
        IF FOUND THEN
            RETURN claim_reads(r, asked_fingerprint, asked_owner, true, now);
        END IF;
        -- Another insert was first and was not to be seen: look again.
    END LOOP;
    now := clock(at);
    a := claim_reads(r, asked_fingerprint, asked_owner, true, now);
    IF a.answer IS NOT NULL THEN
        RETURN a;
    END IF;
    IF r.state <> 0 AND r.due_at <= now THEN
        -- Expired: as if absent, but that its fence still counts.
        seen.id := r.id;
        seen.fence := r.fence;
        RETURN claim_grants(r, seen, asked_fingerprint, asked_owner, t, now, false);
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

-- The same among others: one that waits for a stranger's insert must not hold the others up.
CREATE FUNCTION claim_carefully(
    asked_id bytea, asked_fingerprint bytea, asked_owner uuid, t terms, at bigint
) RETURNS answer LANGUAGE plpgsql AS $$
BEGIN
    RETURN claim_one(asked_id, asked_fingerprint, asked_owner, t, true, at);
EXCEPTION WHEN lock_not_available THEN
    RETURN claim_says(8, NULL, NULL);
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
        PERFORM put_and_wake(r, now);
        r.mark := mark_of(r);
        RETURN claim_reads(r, asked_fingerprint, asked_owner, true, now);
    END IF;
    IF t.policy = 2 THEN
        r.recovery_owner := asked_owner;
        r.recovery_until := now + t.lease;
        PERFORM put_and_wake(r, now);
        RETURN recovering(r, now);
    END IF;
    IF lapsed THEN
        PERFORM put_and_wake(r, now);
    END IF;
    a := claim_says(3, r.fence, now);
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
            PERFORM put_and_wake(r, now);
        END IF;
        a := claim_says(CASE WHEN seen.owner = asked_owner THEN 6 ELSE 3 END, r.fence, now);
        a.since := now;
        RETURN a;
    END IF;
    granted_now := granted(seen, asked_fingerprint, asked_owner, t, now);
    PERFORM put_and_wake(granted_now, now);
    granted_now.mark := mark_of(granted_now);
    RETURN claim_reads(granted_now, asked_fingerprint, asked_owner, true, now);
END
$$;

-- Many claims in the order of their ids, so that two calls cannot wait for each other. Several of one record are
-- answered as one after the other would be. `term_of` says by its position which of the terms a claim is under.
-- `careful`: what another transaction holds is answered 8, and the others are not held up.
CREATE FUNCTION claim(
    ids bytea[], fingerprints bytea[], owners uuid[], term_of integer[],
    leases bigint[], run_maxes bigint[], retentions bigint[], unknown_retentions bigint[], policies smallint[],
    attempts_maxes bigint[], hold_fors bigint[], remotes boolean[], sealed_versions integer[], sealed_heads bytea[],
    sealed_kepts smallint[], sealed_sums integer[], sealed_bodies bytea[],
    patience integer DEFAULT NULL, careful boolean DEFAULT false, at bigint DEFAULT NULL
) RETURNS SETOF answer LANGUAGE plpgsql
SET search_path FROM CURRENT SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET enable_bitmapscan = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    asked integer := cardinality(ids);
    answered integer[];
    undecided integer[];
    fresh_fences bigint[];
    fresh_ids bytea[];
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
        answered := answered || item.position::integer;
        a := claim_reads(item.stored, item.fingerprint, item.owner, false, now);
        a.item := item.position;
        IF a.answer IS NULL THEN
            undecided := undecided || item.position::integer;
        ELSE
            RETURN NEXT a;
        END IF;
    END LOOP;
    -- What is not there, all at once.
    IF NOT careful AND (answered IS NULL OR cardinality(answered) < asked) THEN
        WITH fresh AS (
            SELECT i.*, nextval('fences') AS fence
            FROM unnest(ids, fingerprints, owners, term_of) WITH ORDINALITY
                AS i (id, fingerprint, owner, term, position)
            WHERE answered IS NULL OR i.position <> ALL (answered)
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
        SELECT array_agg(i.fence ORDER BY i.fence), array_agg(i.id ORDER BY i.fence)
        INTO fresh_fences, fresh_ids FROM inserted i;
        IF cardinality(fresh_fences) = asked THEN
            -- All of them: numbers were taken in the order of the items.
            RETURN QUERY SELECT g.* FROM unnest(fresh_fences) WITH ORDINALITY AS i (fence, item)
                CROSS JOIN LATERAL granted_answer(i.item, i.fence, now) AS g;
            RETURN;
        END IF;
        RETURN QUERY SELECT g.* FROM unnest(fresh_fences, fresh_ids) AS i (fence, id)
            CROSS JOIN LATERAL granted_answer(array_position(ids, i.id), i.fence, now) AS g;
        answered := answered || ARRAY(SELECT array_position(ids, i.id) FROM unnest(fresh_ids) AS i (id));
    END IF;
    -- What another call inserted meanwhile, and further claims of what this one did.
    IF answered IS NULL OR cardinality(answered) < asked THEN
        undecided := undecided || ARRAY(
            SELECT n FROM generate_series(1, asked) AS n WHERE answered IS NULL OR n <> ALL (answered));
    END IF;
    -- What has to be written over, one by one under its lock.
    FOR item IN SELECT i.position FROM unnest(undecided) AS i (position) ORDER BY i.position LOOP
        SELECT leases[n], run_maxes[n], retentions[n], unknown_retentions[n], policies[n], attempts_maxes[n],
            hold_fors[n], remotes[n], sealed_versions[n], sealed_heads[n], sealed_kepts[n], sealed_sums[n],
            sealed_bodies[n]
        INTO t FROM (SELECT term_of[item.position] AS n) AS term;
        IF careful THEN
            a := claim_carefully(ids[item.position], fingerprints[item.position], owners[item.position], t, at);
        ELSE
            a := claim_one(ids[item.position], fingerprints[item.position], owners[item.position], t, false, at);
        END IF;
        a.item := item.position;
        RETURN NEXT a;
    END LOOP;
END
$$;

-- The answer to the first claim of a new record.
CREATE FUNCTION granted_answer(item bigint, fence bigint, now bigint) RETURNS SETOF answer
LANGUAGE sql IMMUTABLE ROWS 1 AS $$
    SELECT 1::bigint, item, 0::bigint, fence, 1::bigint, now, NULL::bigint, NULL::bigint, NULL::bigint, NULL::bigint,
        NULL::bigint, NULL::bigint, NULL::bytea, NULL::bytea, NULL::bytea, NULL::text[], NULL::bytea[]
$$;
