"""Recovery after a start: the log, then the queues and the index that are made to agree with it."""
