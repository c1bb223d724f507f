-- What a running unit may use: sessions, and data channels of each.
ALTER TABLE unit ADD COLUMN concurrency INTEGER NOT NULL DEFAULT 1;
ALTER TABLE unit ADD COLUMN parallelism INTEGER NOT NULL DEFAULT 1;
-- What an agent said of its units with its last poll.
ALTER TABLE agent ADD COLUMN report TEXT NOT NULL DEFAULT '{}';
-- What the leader says of jobs: why they wait, how fast they are. It writes what has changed, once a
-- second at most.
CREATE TABLE job_now (
    id TEXT PRIMARY KEY,
    why TEXT NOT NULL,
    bytes INTEGER NOT NULL,
    goodput REAL NOT NULL
) STRICT;
