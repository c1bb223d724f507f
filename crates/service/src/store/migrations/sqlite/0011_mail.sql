-- Messages that were sent for a user on one day, counted from 1970.
CREATE TABLE mail_count (
    owner TEXT PRIMARY KEY,
    day INTEGER NOT NULL,
    messages INTEGER NOT NULL
) STRICT;
