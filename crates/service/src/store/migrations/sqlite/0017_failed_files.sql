-- Files that were given up are found among millions that were only tried again.
CREATE INDEX file_exception_failed ON file_exception (job, failed, number) WHERE failed = 1;
