"""Queries: messages by key and id, entries of a queue."""
