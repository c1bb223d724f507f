-- Sizes and checksums that agents report, beside the immutable manifest.
ALTER TABLE segment ADD COLUMN receipts BLOB;
-- Limits of a user: jobs that are not final, and their files.
ALTER TABLE principal ADD COLUMN max_jobs INTEGER;
ALTER TABLE principal ADD COLUMN max_files INTEGER;
