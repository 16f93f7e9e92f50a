-- What is kept. Times are milliseconds since 1970 on this server's clock; ids, owners and fingerprints are as the
-- record codec writes them. One process may be older than another, so a table is only ever added to.

-- Fences: larger than every one granted before, to any record. Below 2^53, so that they survive JSON.
-- No number is kept back for a session: a later grant must have a higher fence whichever session makes it.
CREATE SEQUENCE fences AS bigint MINVALUE 1 MAXVALUE 9007199254740991 CACHE 1 NO CYCLE;

CREATE TABLE meta (
    one     boolean PRIMARY KEY DEFAULT true CHECK (one),
    version integer NOT NULL,
    secret  bytea
);

-- One narrow row for each record. Wide columns first, so that nothing is lost to alignment.
CREATE TABLE records (
    id                bytea PRIMARY KEY,
    owner             uuid NOT NULL,
    fence             bigint NOT NULL,
    attempt           bigint NOT NULL,
    created_at        bigint NOT NULL,
    granted_at        bigint NOT NULL,
    run_until         bigint NOT NULL,
    -- In flight: when the lease ends. In every other state: when the record expires.
    due_at            bigint NOT NULL,
    -- Completed: when. Unknown: since when.
    since             bigint,
    retention         bigint NOT NULL,
    unknown_retention bigint NOT NULL,
    -- A hash of all other columns but `body`, for which `body_sum` stands in.
    mark              bigint NOT NULL,
    recovery_until    bigint,
    recovery_owner    uuid,
    content_version   integer,
    -- The CRC-32C of the body, wherever it is.
    body_sum          integer,
    -- The partition of `bodies` that holds the body, when this row does not.
    body_day          integer,
    -- 0 in flight, 1 completed, 2 released, 3 unknown.
    state             smallint NOT NULL,
    -- 0 execution, 1 seal, 2 resolve.
    completed_by      smallint,
    -- 0 the body is kept; 1 too large, 2 discarded, 3 erased, 4 indeterminate.
    kept              smallint,
    remote            boolean NOT NULL,
    fingerprint       bytea,
    head              bytea,
    body              bytea,
    late              bytea,
    step_names        text[],
    step_values       bytea[]
);

-- What is due: leases that pass and records that expire.
CREATE INDEX records_due ON records (due_at);

-- Every completion leaves a dead row behind: clean up while it is little. Files are not made shorter, because that
-- excludes everyone for a while.
ALTER TABLE records SET (
    autovacuum_vacuum_scale_factor = 0.1, autovacuum_vacuum_insert_scale_factor = 0.2,
    autovacuum_analyze_scale_factor = 0.05, vacuum_truncate = off
);

-- Bodies that are too large for their row, by the day on which they expire: a day that is over is dropped whole.
CREATE TABLE bodies (
    day   integer NOT NULL,
    fence bigint NOT NULL,
    id    bytea NOT NULL,
    body  bytea NOT NULL,
    PRIMARY KEY (day, fence, id)
) PARTITION BY LIST (day);

-- Who waits for a change of which record, and until when. Lost in a crash: waiters also look for themselves.
CREATE UNLOGGED TABLE waiting (
    id    bytea PRIMARY KEY,
    until bigint NOT NULL
);

-- What operators did.
CREATE TABLE audit (
    at     bigint NOT NULL,
    id     bytea NOT NULL,
    fence  bigint NOT NULL,
    actor  text NOT NULL,
    verdict text NOT NULL
);
CREATE INDEX audit_at ON audit (at);

-- The conditions of a claim.
CREATE TYPE terms AS (
    lease             bigint,
    run_max           bigint,
    retention         bigint,
    unknown_retention bigint,
    -- 0 hold, 1 seal, 2 query, 3 rerun.
    policy            smallint,
    attempts_max      bigint,
    hold_for          bigint,
    remote            boolean,
    sealed_version    integer,
    sealed_head       bytea,
    sealed_kept       smallint,
    sealed_sum        integer,
    sealed_body       bytea
);

-- What a command answers, in few types, so that every driver reads it. `kind`: 1 claim, 2 complete, 3 renew, 4
-- release; `item`: which of them in the call, from 1; `answer` 9: the record is damaged; 8:
-- another transaction has it and was not waited for.
CREATE TYPE answer AS (
    kind            bigint,
    item            bigint,
    answer          bigint,
    fence           bigint,
    attempt         bigint,
    at              bigint,
    since           bigint,
    until           bigint,
    completed_by    bigint,
    content_version bigint,
    body_sum        bigint,
    kept            bigint,
    head            bytea,
    body            bytea,
    fingerprint     bytea,
    step_names      text[],
    step_values     bytea[]
);
