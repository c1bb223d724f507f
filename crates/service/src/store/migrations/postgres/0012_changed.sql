-- When what waits of a job changed last, other than by a grant, and never the same again. The leader
-- reads the queues of these jobs alone.
ALTER TABLE job ADD COLUMN changed BIGINT NOT NULL DEFAULT 0;
CREATE INDEX job_changed ON job (changed);
