-- A schedule that is paused submits nothing.
ALTER TABLE schedule ADD COLUMN paused BIGINT NOT NULL DEFAULT 0;
