"""Costs over the number of topics, queues, groups and messages."""
