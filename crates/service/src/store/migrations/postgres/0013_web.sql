-- Sessions of browsers, by the hash of their secret. A session ends with what it began with: the
-- API token (its hash), the identity at another system, or the hash of the password.
CREATE TABLE web_session (
    hash BYTEA PRIMARY KEY,
    principal TEXT NOT NULL,
    token BYTEA,
    identity TEXT,
    password TEXT,
    created BIGINT NOT NULL,
    used BIGINT NOT NULL,
    expires BIGINT NOT NULL
);
CREATE INDEX web_session_principal ON web_session (principal, created);
CREATE INDEX web_session_expires ON web_session (expires);
-- Names of jobs in lower case, for searches. PostgreSQL reads no options in which a user's text has
-- \u0000: such jobs are not found by their names.
ALTER TABLE job ADD COLUMN name TEXT COLLATE "C";
UPDATE job SET name = CASE WHEN position('\u0000' IN options) = 0
    THEN lower(CAST(options AS json)->>'name') END;
CREATE INDEX job_owner_name ON job (owner, name, number DESC) WHERE name IS NOT NULL;
CREATE INDEX job_name ON job (name, number DESC) WHERE name IS NOT NULL;
CREATE INDEX job_owner_state ON job (owner, state, number);
CREATE INDEX job_state ON job (state, number);
-- Sessions and channels of a job, and what holds it back, as the leader says.
ALTER TABLE job_now ADD COLUMN pace TEXT NOT NULL DEFAULT '{}';
-- What the leader says of pairs of endpoints.
CREATE TABLE link_now (
    link BIGINT PRIMARY KEY,
    now TEXT NOT NULL
);
-- Files between a pair of endpoints that ended in an hour, counted from 1970.
CREATE TABLE link_hour (
    link BIGINT NOT NULL,
    hour BIGINT NOT NULL,
    finished BIGINT NOT NULL,
    failed BIGINT NOT NULL,
    bytes BIGINT NOT NULL,
    PRIMARY KEY (link, hour)
);
