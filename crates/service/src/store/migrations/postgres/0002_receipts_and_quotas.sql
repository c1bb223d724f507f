-- Sizes and checksums that agents report, beside the immutable manifest.
ALTER TABLE segment ADD COLUMN receipts BYTEA;
-- Limits of a user: jobs that are not final, and their files.
ALTER TABLE principal ADD COLUMN max_jobs BIGINT;
ALTER TABLE principal ADD COLUMN max_files BIGINT;
