-- Taking in records of another store, as they are.

-- Raises what the sequence offers next above `floor`. In a transaction of its own, before the records can be seen.
--
-- Not by ALTER SEQUENCE, which waits for every open transaction that took a number, a stranger's `claim_in` among them,
-- while all fresh claims wait behind it. `setval` waits for nobody; it could lower the sequence only if 2^32 numbers
-- were taken between the look and the change. Two that raise exclude each other.
CREATE FUNCTION raise_fences(floor bigint) RETURNS void LANGUAGE plpgsql SECURITY DEFINER
SET search_path FROM CURRENT AS $$
BEGIN
    PERFORM begin_command(NULL);
    PERFORM pg_advisory_xact_lock(hashtextextended(current_schema() || ' fences', 0));
    IF floor >= (SELECT f.last_value FROM fences f) THEN
        PERFORM setval('fences', floor + 4294967296);
    END IF;
END
$$;

-- Takes in records of different ids, in their order; answers the ids that were taken.
CREATE FUNCTION import(
    ids bytea[], owners uuid[], asked_fences bigint[], attempts bigint[], created_ats bigint[], granted_ats bigint[],
    run_ends bigint[], due_ats bigint[], sinces bigint[], retentions bigint[], unknown_retentions bigint[],
    recovery_ends bigint[], recovery_owners uuid[], versions integer[], states smallint[], completed_bys smallint[],
    kepts smallint[], remotes boolean[], fingerprints bytea[], heads bytea[], sums integer[], asked_bodies bytea[], late_outcomes bytea[],
    step_counts integer[], all_step_names text[], all_step_values bytea[], patience integer DEFAULT NULL,
    at bigint DEFAULT NULL
) RETURNS integer LANGUAGE plpgsql
SET search_path FROM CURRENT SET enable_seqscan = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    r records;
    old records;
    now bigint;
    taken integer := 0;
    step integer := 0;
BEGIN
    PERFORM begin_command(patience);
    FOR n IN 1 .. coalesce(cardinality(ids), 0) LOOP
        step := step + step_counts[n];
        now := clock(at);
        CONTINUE WHEN states[n] <> 0 AND due_ats[n] <= now;
        r := NULL;
        r.id := ids[n];
        r.owner := owners[n];
        r.fence := asked_fences[n];
        r.attempt := attempts[n];
        r.created_at := created_ats[n];
        r.granted_at := granted_ats[n];
        r.run_until := run_ends[n];
        r.due_at := due_ats[n];
        r.since := sinces[n];
        r.retention := retentions[n];
        r.unknown_retention := unknown_retentions[n];
        r.recovery_until := recovery_ends[n];
        r.recovery_owner := recovery_owners[n];
        r.content_version := versions[n];
        r.state := states[n];
        r.completed_by := completed_bys[n];
        r.kept := kepts[n];
        r.remote := remotes[n];
        r.fingerprint := fingerprints[n];
        r.head := heads[n];
        r.late := late_outcomes[n];
        IF step_counts[n] > 0 THEN
            r.step_names := all_step_names[step - step_counts[n] + 1 : step];
            r.step_values := all_step_values[step - step_counts[n] + 1 : step];
        END IF;
        SELECT * INTO old FROM records WHERE id = r.id FOR UPDATE;
        now := clock(at);
        CONTINUE WHEN FOUND AND (old.mark <> mark_of(old) OR old.state = 0 OR old.due_at > now);
        IF FOUND THEN
            DELETE FROM records WHERE id = r.id;
        END IF;
        r.mark := 0;
        INSERT INTO records SELECT r.* ON CONFLICT (id) DO NOTHING;
        CONTINUE WHEN NOT FOUND;
        PERFORM put_and_wake(keep_body(r, asked_bodies[n], sums[n], now), now);
        taken := taken + 1;
    END LOOP;
    RETURN taken;
END
$$;
