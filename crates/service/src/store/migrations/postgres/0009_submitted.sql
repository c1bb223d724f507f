-- How many segments of a job were submitted; what listings found came after. Null: not known.
ALTER TABLE job ADD COLUMN submitted BIGINT;
