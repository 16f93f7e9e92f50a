-- One row for each event that a consumer has processed, written in the transaction of its effect. Ids are compared by
-- their bytes: a language's order of texts would cost more than writing the row.
CREATE TABLE IF NOT EXISTS {schema}.processed_events (
    consumer     text COLLATE "C" NOT NULL CHECK (consumer <> ''),
    event_id     text COLLATE "C" NOT NULL CHECK (event_id <> ''),
    processed_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (consumer, event_id)
);
CREATE INDEX IF NOT EXISTS processed_events_age ON {schema}.processed_events (consumer, processed_at);
