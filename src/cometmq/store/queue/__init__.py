"""Consume queues: their files, units and extension."""
