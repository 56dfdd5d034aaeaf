"""Rebuilding consume queues and index of a store with Spark."""
