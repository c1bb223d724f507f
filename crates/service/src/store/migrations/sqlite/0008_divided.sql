-- Files that several units copy, each a range of it, into one temporary file. `waiting`: ranges that
-- are not copied; `copied`: bytes of those that are.
CREATE TABLE divided_file (
    job BIGINT NOT NULL,
    number BIGINT NOT NULL,
    temporary TEXT NOT NULL,
    size BIGINT NOT NULL,
    changed BIGINT NOT NULL,
    waiting BIGINT NOT NULL,
    copied BIGINT NOT NULL DEFAULT 0,
    PRIMARY KEY (job, number)
);
-- Temporary files of divided files that were given up: an agent removes them.
CREATE TABLE leftover (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    owner TEXT NOT NULL,
    url TEXT NOT NULL,
    since BIGINT NOT NULL,
    attempts BIGINT NOT NULL DEFAULT 0
);
