-- A schedule that is paused submits nothing.
ALTER TABLE schedule ADD COLUMN paused INTEGER NOT NULL DEFAULT 0;
