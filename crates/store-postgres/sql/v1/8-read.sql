-- Reading: whole records for operators, and how much there is. The caller reads lapsed and expired ones as
-- `transition` does.

CREATE TYPE stored AS (
    id                bytea,
    owner             uuid,
    fence             bigint,
    attempt           bigint,
    created_at        bigint,
    granted_at        bigint,
    run_until         bigint,
    due_at            bigint,
    since             bigint,
    retention         bigint,
    unknown_retention bigint,
    recovery_until    bigint,
    recovery_owner    uuid,
    content_version   integer,
    body_sum          integer,
    state             smallint,
    completed_by      smallint,
    kept              smallint,
    remote            boolean,
    fingerprint       bytea,
    head              bytea,
    body              bytea,
    late              bytea,
    step_names        text[],
    step_values       bytea[],
    damaged           boolean,
    now               bigint
);

-- STABLE, so that the body is of the same moment as the row. Only a whole day of bodies can go in between, and then
-- the record expires as well: it is shown as of now.
CREATE FUNCTION stored_of(r records, read_at bigint, at bigint) RETURNS stored LANGUAGE plpgsql STABLE AS $$
DECLARE
    body bytea;
BEGIN
    IF r.state = 0 OR r.due_at > read_at THEN
        body := body_of(r);
        IF body IS NULL AND r.body_day IS NOT NULL THEN
            read_at := clock(at);
        END IF;
    END IF;
    RETURN ROW(
        r.id, r.owner, r.fence, r.attempt, r.created_at, r.granted_at, r.run_until, r.due_at, r.since, r.retention,
        r.unknown_retention, r.recovery_until, r.recovery_owner, r.content_version, r.body_sum, r.state, r.completed_by, r.kept,
        r.remote, r.fingerprint, r.head, body, r.late,
        r.step_names, r.step_values, r.mark <> mark_of(r), read_at);
END
$$;

CREATE FUNCTION lookup(asked_id bytea, at bigint DEFAULT NULL) RETURNS SETOF stored LANGUAGE plpgsql
SET search_path FROM CURRENT SET enable_seqscan = off SET plan_cache_mode = force_generic_plan AS $$
BEGIN
    RETURN QUERY SELECT s.* FROM records r CROSS JOIN LATERAL stored_of(r, clock(at), at) AS s WHERE r.id = asked_id;
END
$$;

-- A page in the order of the ids: after `after`, within the ranges, in one of `states` as commands read them.
CREATE FUNCTION list(
    after bytea, lows bytea[], highs bytea[], states smallint[], created_before bigint, page_size integer,
    at bigint DEFAULT NULL
) RETURNS SETOF stored LANGUAGE plpgsql
SET search_path FROM CURRENT SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
DECLARE
    now bigint := clock(at);
BEGIN
    RETURN QUERY
        SELECT s.* FROM (
            SELECT r FROM records r
            WHERE (after IS NULL OR r.id > after)
                AND (r.state = 0 OR r.due_at > now OR r.mark <> mark_of(r))
                AND (states IS NULL OR r.mark <> mark_of(r)
                    OR (CASE WHEN r.state = 0 AND r.due_at <= now THEN 3 ELSE r.state END)::smallint = ANY (states))
                AND (created_before IS NULL OR r.created_at < created_before)
                AND (lows IS NULL OR EXISTS (
                    SELECT FROM unnest(lows, highs) AS k (low, high) WHERE r.id >= k.low AND r.id <= k.high))
            ORDER BY r.id LIMIT page_size
        ) AS page CROSS JOIN LATERAL stored_of(page.r, now, at) AS s
        ORDER BY s.id;
END
$$;

-- Counts by reading at most `pages_max` pages of the records, spread over all of them: exact up to about a hundred
-- thousand records, an estimate beyond. Bodies in partitions count with the files they take.
CREATE FUNCTION stats(
    pages_max bigint, at bigint DEFAULT NULL, OUT in_flight bigint, OUT completed bigint, OUT released bigint,
    OUT unknown bigint, OUT bytes bigint, OUT oldest_expired bigint
) LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    now bigint := clock(at);
    pages bigint := pg_relation_size('records') / current_setting('block_size')::bigint;
    part double precision := least(1, pages_max / greatest(pages, 1)::double precision);
BEGIN
    SELECT count(*) FILTER (WHERE r.state = 0) / part, count(*) FILTER (WHERE r.state = 1) / part,
        count(*) FILTER (WHERE r.state = 2) / part, count(*) FILTER (WHERE r.state = 3) / part,
        coalesce(sum(pg_column_size(r)), 0) / part + (
            SELECT coalesce(sum(pg_table_size(i.inhrelid)), 0) FROM pg_inherits i WHERE i.inhparent = 'bodies'::regclass)
    INTO in_flight, completed, released, unknown, bytes FROM records r TABLESAMPLE SYSTEM (100 * part);
    oldest_expired := now - (
        SELECT r.due_at FROM records r WHERE r.due_at <= now AND r.state <> 0 ORDER BY r.due_at LIMIT 1);
END
$$;

-- Keeps the first secret that is offered.
CREATE FUNCTION keep_secret(offered bytea) RETURNS bytea LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    kept bytea;
BEGIN
    PERFORM begin_command(NULL);
    SELECT m.secret INTO kept FROM meta m;
    IF kept IS NULL THEN
        UPDATE meta m SET secret = coalesce(m.secret, offered) RETURNING m.secret INTO kept;
    END IF;
    RETURN kept;
END
$$;
