-- Nobody waits any more for what the agent looks for; it is told, and counts until it has let go.
ALTER TABLE browse ADD COLUMN is_over INTEGER NOT NULL DEFAULT 0;
