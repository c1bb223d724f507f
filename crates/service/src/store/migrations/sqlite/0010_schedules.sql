-- Jobs that are submitted again and again. `last_job`: id of the latest.
CREATE TABLE schedule (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    owner TEXT NOT NULL,
    name TEXT NOT NULL,
    cron TEXT NOT NULL,
    zone TEXT NOT NULL,
    request TEXT NOT NULL,
    next_at INTEGER,
    last_job TEXT,
    UNIQUE (owner, name)
);
CREATE INDEX schedule_next_at ON schedule (next_at) WHERE next_at IS NOT NULL;
-- Times that a schedule was due: the job, or why there is none.
CREATE TABLE schedule_run (
    schedule INTEGER NOT NULL,
    due INTEGER NOT NULL,
    job TEXT,
    skipped TEXT,
    PRIMARY KEY (schedule, due)
);
-- Name of the schedule that a job is of.
ALTER TABLE job ADD COLUMN schedule TEXT;
