-- Keys whose certificate a user's client is asked to sign.
CREATE TABLE delegation (
    owner TEXT PRIMARY KEY,
    sealed BLOB NOT NULL,
    created INTEGER NOT NULL
) STRICT;
