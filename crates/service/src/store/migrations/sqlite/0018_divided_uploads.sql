-- What agents know an upload in parts to a bucket by, where a divided file goes there.
ALTER TABLE divided_file ADD COLUMN upload TEXT;
ALTER TABLE leftover ADD COLUMN upload TEXT;
