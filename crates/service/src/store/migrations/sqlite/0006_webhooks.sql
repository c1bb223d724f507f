-- Ends of jobs that are to be reported. A row goes when its report was taken or given up.
CREATE TABLE webhook (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    job INTEGER NOT NULL,
    url TEXT NOT NULL,
    attempts INTEGER NOT NULL DEFAULT 0,
    next_at INTEGER NOT NULL
) STRICT;
CREATE INDEX webhook_job ON webhook (job);
CREATE INDEX webhook_next_at ON webhook (next_at);
-- Keys that reports are signed with, sealed.
CREATE TABLE webhook_key (
    owner TEXT PRIMARY KEY,
    sealed BLOB NOT NULL
) STRICT;
