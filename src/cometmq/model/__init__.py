"""Values everyone speaks: messages, queues, topics, routes, errors. No I/O, no bytes, no clock."""
