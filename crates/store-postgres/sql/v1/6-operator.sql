-- What operators and recovery hooks do: resolve, erase. Answers as `transition/operator.rs` does.

-- `verdict`: 0 executed, 1 not executed, 2 not executed by force, 3 still unknown.
-- Answers: 0 resolved, 1 already, 2 not unknown (`state`), 3 stale (`fence`), 4 too early (`left`), 5 contradicted,
-- 6 absent, 9 damaged.
CREATE FUNCTION resolve(
    asked_id bytea, asked_fence bigint, verdict smallint, asked_version integer, asked_kept smallint, asked_head bytea,
    asked_sum integer, asked_body bytea, actor text, patience integer DEFAULT NULL, at bigint DEFAULT NULL,
    OUT answer smallint, OUT state smallint, OUT fence bigint, OUT "left" bigint, OUT kept smallint,
    OUT body_sum integer, OUT body bytea
) LANGUAGE plpgsql
SET search_path FROM CURRENT SET enable_seqscan = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    r records;
    now bigint;
BEGIN
    PERFORM begin_command(patience);
    r := take(asked_id, false);
    now := clock(at);
    IF r.id IS NULL OR (r.mark = mark_of(r) AND r.state <> 0 AND r.due_at <= now) THEN
        answer := 6;
        RETURN;
    ELSIF r.mark <> mark_of(r) THEN
        answer := 9;
        RETURN;
    ELSIF r.fence <> asked_fence THEN
        answer := 3;
        fence := r.fence;
        RETURN;
    END IF;
    IF r.state = 0 AND r.due_at <= now THEN
        r := lapse(r, now);
    END IF;
    answer := resolve_answer(r, verdict, asked_version, asked_kept, asked_head, asked_body, now);
    state := r.state;
    "left" := r.run_until - now;
    IF answer = 1 AND r.state = 1 THEN
        kept := r.kept;
        body_sum := r.body_sum;
        body := body_of(r);
    END IF;
    IF answer <> 0 THEN
        RETURN;
    END IF;
    IF verdict = 0 THEN
        r := drop_body(r);
        r.state := 1;
        r.completed_by := 2;
        r.since := now;
        r.due_at := now + r.retention;
        r.content_version := asked_version;
        r.kept := asked_kept;
        r.head := asked_head;
        r := keep_body(r, asked_body, asked_sum, now);
    ELSIF verdict IN (1, 2) THEN
        r := drop_body(r);
        r.state := 2;
        r.due_at := now + r.retention;
        r.since := NULL;
        r.completed_by := NULL;
        r.content_version := NULL;
        r.kept := NULL;
        r.head := NULL;
    END IF;
    IF verdict <> 3 THEN
        r.late := NULL;
    END IF;
    r.recovery_owner := NULL;
    r.recovery_until := NULL;
    PERFORM put_and_wake(r, now);
    INSERT INTO audit VALUES (now, r.id, r.fence, actor, (
        ARRAY['executed', 'not executed', 'not executed, by force', 'still unknown'])[verdict + 1]);
END
$$;

-- What a resolution is answered, and so whether it applies.
CREATE FUNCTION resolve_answer(
    r records, verdict smallint, asked_version integer, asked_kept smallint, asked_head bytea, asked_body bytea,
    now bigint
) RETURNS smallint LANGUAGE plpgsql AS $$
DECLARE
    sealed boolean := r.state = 1 AND r.completed_by = 1;
BEGIN
    IF r.state = 1 AND r.completed_by = 2 AND verdict = 0 AND r.content_version = asked_version
            AND r.kept = asked_kept AND r.head = asked_head AND body_of(r) IS NOT DISTINCT FROM asked_body THEN
        RETURN 1;
    ELSIF r.state = 2 AND verdict IN (1, 2) THEN
        RETURN 1;
    ELSIF r.state <> 3 AND NOT (sealed AND verdict <> 3) THEN
        RETURN 2;
    ELSIF sealed AND verdict = 1 AND r.late IS NOT NULL THEN
        RETURN 5;
    ELSIF verdict = 1 AND now < r.run_until THEN
        -- "Not executed" is final only when the attempt can no longer run.
        RETURN 4;
    END IF;
    RETURN 0;
END
$$;

-- Answers: 0 erased, 1 in flight, 2 absent, 9 damaged.
CREATE FUNCTION erase(asked_id bytea, patience integer DEFAULT NULL, at bigint DEFAULT NULL) RETURNS smallint
LANGUAGE plpgsql
SET search_path FROM CURRENT SET enable_seqscan = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    r records;
    now bigint;
BEGIN
    PERFORM begin_command(patience);
    r := take(asked_id, false);
    now := clock(at);
    IF r.id IS NULL THEN
        RETURN 2;
    ELSIF r.mark <> mark_of(r) THEN
        RETURN 9;
    ELSIF r.state <> 0 AND r.due_at <= now THEN
        RETURN 2;
    ELSIF r.state = 0 AND now < r.due_at THEN
        RETURN 1;
    END IF;
    IF r.state = 0 THEN
        r := lapse(r, now);
    END IF;
    IF r.state = 1 THEN
        r := drop_body(r);
        r.kept := 3;
        r.late := NULL;
    END IF;
    -- The names stay: a step that is forgotten would be made, and its effect had, a second time.
    IF r.step_names IS NOT NULL THEN
        r.step_values := array_fill(NULL::bytea, ARRAY[cardinality(r.step_names)]);
    END IF;
    PERFORM put_and_wake(r, now);
    RETURN 0;
END
$$;
