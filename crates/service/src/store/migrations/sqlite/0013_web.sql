-- Sessions of browsers, by the hash of their secret. A session ends with what it began with: the
-- API token (its hash), the identity at another system, or the hash of the password.
CREATE TABLE web_session (
    hash BLOB PRIMARY KEY,
    principal TEXT NOT NULL,
    token BLOB,
    identity TEXT,
    password TEXT,
    created INTEGER NOT NULL,
    used INTEGER NOT NULL,
    expires INTEGER NOT NULL
) STRICT;
CREATE INDEX web_session_principal ON web_session (principal, created);
CREATE INDEX web_session_expires ON web_session (expires);
-- Names of jobs in lower case, for searches.
ALTER TABLE job ADD COLUMN name TEXT;
UPDATE job SET name = lower(json_extract(options, '$.name'))
    WHERE json_extract(options, '$.name') IS NOT NULL;
CREATE INDEX job_owner_name ON job (owner, name, number DESC) WHERE name IS NOT NULL;
CREATE INDEX job_name ON job (name, number DESC) WHERE name IS NOT NULL;
CREATE INDEX job_owner_state ON job (owner, state, number);
CREATE INDEX job_state ON job (state, number);
-- Sessions and channels of a job, and what holds it back, as the leader says.
ALTER TABLE job_now ADD COLUMN pace TEXT NOT NULL DEFAULT '{}';
-- What the leader says of pairs of endpoints.
CREATE TABLE link_now (
    link INTEGER PRIMARY KEY,
    now TEXT NOT NULL
) STRICT;
-- Files between a pair of endpoints that ended in an hour, counted from 1970.
CREATE TABLE link_hour (
    link INTEGER NOT NULL,
    hour INTEGER NOT NULL,
    finished INTEGER NOT NULL,
    failed INTEGER NOT NULL,
    bytes INTEGER NOT NULL,
    PRIMARY KEY (link, hour)
) STRICT, WITHOUT ROWID;
