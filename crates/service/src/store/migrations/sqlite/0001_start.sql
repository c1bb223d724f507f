-- Times are microseconds since 1970 by the clock of the database.
CREATE TABLE leader (
    id INTEGER PRIMARY KEY,
    node TEXT NOT NULL,
    epoch INTEGER NOT NULL,
    until INTEGER NOT NULL,
    renewed INTEGER NOT NULL,
    steady_since INTEGER NOT NULL
) STRICT;

CREATE TABLE job (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    owner TEXT NOT NULL,
    idempotency_key TEXT,
    state TEXT NOT NULL,
    reason TEXT,
    options TEXT NOT NULL,
    deadline INTEGER,
    next_index INTEGER NOT NULL DEFAULT 0,
    next_segment INTEGER NOT NULL DEFAULT 0,
    total INTEGER NOT NULL DEFAULT 0,
    finished INTEGER NOT NULL DEFAULT 0,
    skipped INTEGER NOT NULL DEFAULT 0,
    failed INTEGER NOT NULL DEFAULT 0,
    listings INTEGER NOT NULL DEFAULT 0,
    bytes_total INTEGER NOT NULL DEFAULT 0,
    bytes_done INTEGER NOT NULL DEFAULT 0,
    events INTEGER NOT NULL DEFAULT 0,
    created INTEGER NOT NULL,
    touched INTEGER NOT NULL,
    started INTEGER,
    ended INTEGER,
    UNIQUE (owner, idempotency_key)
) STRICT;
CREATE INDEX job_owner ON job (owner, number);
CREATE INDEX job_open ON job (number) WHERE ended IS NULL;
CREATE INDEX job_ended ON job (ended) WHERE ended IS NOT NULL;

CREATE TABLE job_after (
    job INTEGER NOT NULL,
    predecessor INTEGER NOT NULL,
    PRIMARY KEY (job, predecessor)
) STRICT, WITHOUT ROWID;
CREATE INDEX job_after_predecessor ON job_after (predecessor);

CREATE TABLE job_error (
    job INTEGER NOT NULL,
    code TEXT NOT NULL,
    files INTEGER NOT NULL,
    PRIMARY KEY (job, code)
) STRICT, WITHOUT ROWID;

CREATE TABLE endpoint (
    name TEXT PRIMARY KEY,
    state TEXT NOT NULL,
    limits TEXT NOT NULL
) STRICT;

CREATE TABLE link (
    number INTEGER PRIMARY KEY,
    source TEXT NOT NULL,
    destination TEXT NOT NULL,
    limits TEXT NOT NULL,
    UNIQUE (source, destination)
) STRICT;

CREATE TABLE share (
    path TEXT PRIMARY KEY,
    weight REAL NOT NULL
) STRICT;

-- `staged`: the unit that lists and has not ended; its segments are not part of the job yet.
CREATE TABLE segment (
    job INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    link INTEGER NOT NULL,
    directories INTEGER NOT NULL,
    base INTEGER NOT NULL,
    files INTEGER NOT NULL,
    sized INTEGER NOT NULL,
    manifest BLOB NOT NULL,
    outcomes BLOB NOT NULL,
    staged INTEGER,
    PRIMARY KEY (job, seq)
) STRICT;
CREATE UNIQUE INDEX segment_base ON segment (job, base);
CREATE INDEX segment_staged ON segment (staged) WHERE staged IS NOT NULL;

-- Hot and short: a unit that ended is deleted. A unit without an agent is ready.
CREATE TABLE unit (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    job INTEGER NOT NULL,
    link INTEGER NOT NULL,
    segment INTEGER NOT NULL,
    first INTEGER NOT NULL,
    past INTEGER NOT NULL,
    range_from INTEGER,
    range_to INTEGER,
    files INTEGER NOT NULL,
    bytes INTEGER NOT NULL,
    not_before INTEGER NOT NULL DEFAULT 0,
    agent INTEGER,
    epoch INTEGER NOT NULL DEFAULT 0,
    results INTEGER NOT NULL DEFAULT 0,
    losses INTEGER NOT NULL DEFAULT 0,
    attempts INTEGER NOT NULL DEFAULT 0,
    directories INTEGER NOT NULL DEFAULT 0,
    picks TEXT
) STRICT;
CREATE INDEX unit_queue ON unit (job, link, id);
CREATE INDEX unit_agent ON unit (agent) WHERE agent IS NOT NULL;

CREATE TABLE file_exception (
    job INTEGER NOT NULL,
    number INTEGER NOT NULL,
    failed INTEGER NOT NULL,
    attempts INTEGER NOT NULL,
    error TEXT NOT NULL,
    agent TEXT NOT NULL,
    at INTEGER NOT NULL,
    PRIMARY KEY (job, number)
) STRICT, WITHOUT ROWID;

CREATE TABLE agent (
    number INTEGER PRIMARY KEY,
    name TEXT NOT NULL UNIQUE,
    incarnation TEXT NOT NULL,
    description TEXT NOT NULL,
    draining INTEGER NOT NULL DEFAULT 0,
    sequence INTEGER NOT NULL,
    lease_until INTEGER NOT NULL,
    seen INTEGER NOT NULL
) STRICT;

CREATE TABLE event (
    job INTEGER NOT NULL,
    number INTEGER NOT NULL,
    at INTEGER NOT NULL,
    what TEXT NOT NULL,
    PRIMARY KEY (job, number)
) STRICT, WITHOUT ROWID;
CREATE INDEX event_at ON event (at);

CREATE TABLE history (
    id TEXT NOT NULL,
    owner TEXT NOT NULL,
    ended INTEGER NOT NULL,
    summary TEXT NOT NULL,
    PRIMARY KEY (ended, id)
) STRICT, WITHOUT ROWID;
CREATE INDEX history_id ON history (id);

CREATE TABLE principal (
    name TEXT PRIMARY KEY,
    role TEXT NOT NULL,
    user_groups TEXT NOT NULL,
    password_hash TEXT,
    disabled INTEGER NOT NULL DEFAULT 0
) STRICT;

CREATE TABLE identity (
    name TEXT PRIMARY KEY,
    principal TEXT NOT NULL
) STRICT;
CREATE INDEX identity_principal ON identity (principal);

CREATE TABLE api_token (
    id TEXT PRIMARY KEY,
    principal TEXT NOT NULL,
    hash BLOB NOT NULL UNIQUE,
    label TEXT NOT NULL,
    created INTEGER NOT NULL,
    expires INTEGER
) STRICT;
CREATE INDEX api_token_principal ON api_token (principal);

CREATE TABLE credential (
    id TEXT PRIMARY KEY,
    owner TEXT NOT NULL,
    endpoint TEXT NOT NULL,
    kind TEXT NOT NULL,
    sealed BLOB NOT NULL,
    expires INTEGER,
    created INTEGER NOT NULL
) STRICT;
CREATE INDEX credential_owner ON credential (owner);

CREATE TABLE audit (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    at INTEGER NOT NULL,
    who TEXT NOT NULL,
    action TEXT NOT NULL,
    subject TEXT NOT NULL,
    detail TEXT NOT NULL
) STRICT;
