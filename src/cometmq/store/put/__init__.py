"""Putting messages: one, groups, batches and pre-encoded bulks."""
