"""The sink: rows as messages, at least once or exactly once."""
