-- Where a trace of the job goes on, as the header traceparent of W3C has it. Null: it has none.
ALTER TABLE job ADD COLUMN trace TEXT;
-- Directories that users look into, until they have seen what an agent found there.
CREATE TABLE browse (
    id TEXT PRIMARY KEY,
    owner TEXT NOT NULL,
    endpoint TEXT NOT NULL,
    request TEXT NOT NULL,
    created BIGINT NOT NULL,
    -- The agent that looks, since when.
    agent TEXT,
    taken BIGINT,
    answer TEXT
);
