-- Events that are to be published, written in the transaction of their cause. Three partitions take turns, so that what
-- is delivered goes by TRUNCATE and leaves nothing behind for vacuum.
CREATE SEQUENCE IF NOT EXISTS {schema}.outbox_order;
CREATE TABLE IF NOT EXISTS {schema}.outbox (
    bucket        smallint    NOT NULL,
    seq           bigint      NOT NULL DEFAULT nextval('{schema}.outbox_order'),
    id            text        NOT NULL CHECK (id <> ''),
    topic         text        NOT NULL,
    order_key     text,                            -- events with the same key go out in the order of seq
    header_names  text[]      NOT NULL DEFAULT '{}',
    header_values bytea[]     NOT NULL DEFAULT '{}',
    body          bytea       NOT NULL,
    written_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
    due_at        timestamptz NOT NULL DEFAULT clock_timestamp(),
    leased_until  timestamptz,
    generation    bigint      NOT NULL DEFAULT 0,  -- grows with every lease: a stale relay changes nothing
    attempts      integer     NOT NULL DEFAULT 0,
    refusals      integer     NOT NULL DEFAULT 0,  -- of those, how many the broker refused: an outage parks nothing
    delivered_at  timestamptz,
    parked        text,                            -- why it is not tried again, until someone says so
    PRIMARY KEY (bucket, id)
) PARTITION BY LIST (bucket);
ALTER TABLE {schema}.outbox ADD COLUMN IF NOT EXISTS refusals integer NOT NULL DEFAULT 0;
CREATE TABLE IF NOT EXISTS {schema}.outbox_0 PARTITION OF {schema}.outbox FOR VALUES IN (0) WITH (fillfactor = 70);
CREATE TABLE IF NOT EXISTS {schema}.outbox_1 PARTITION OF {schema}.outbox FOR VALUES IN (1) WITH (fillfactor = 70);
CREATE TABLE IF NOT EXISTS {schema}.outbox_2 PARTITION OF {schema}.outbox FOR VALUES IN (2) WITH (fillfactor = 70);
CREATE INDEX IF NOT EXISTS outbox_open ON {schema}.outbox (seq) WHERE delivered_at IS NULL;
CREATE INDEX IF NOT EXISTS outbox_keys ON {schema}.outbox (order_key, seq) WHERE delivered_at IS NULL;
