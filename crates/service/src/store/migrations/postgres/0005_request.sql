-- Digest of what was submitted: a key that comes again must bring the same.
ALTER TABLE job ADD COLUMN request BYTEA;
