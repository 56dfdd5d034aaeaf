"""From the log to consume queues and index: what is dispatched, and where to."""
