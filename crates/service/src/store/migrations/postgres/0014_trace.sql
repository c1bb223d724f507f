-- Where a trace of the job goes on, as the header traceparent of W3C has it. Null: it has none.
ALTER TABLE job ADD COLUMN trace TEXT;
