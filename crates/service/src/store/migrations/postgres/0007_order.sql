-- Whether files wait for each other; null where they do not.
ALTER TABLE job ADD COLUMN ordered TEXT;
-- Files that the user canceled while others of the job continued.
ALTER TABLE job ADD COLUMN canceled BIGINT NOT NULL DEFAULT 0;
