-- Keys whose certificate a user's client is asked to sign.
CREATE TABLE delegation (
    owner TEXT PRIMARY KEY,
    sealed BYTEA NOT NULL,
    created BIGINT NOT NULL
);
