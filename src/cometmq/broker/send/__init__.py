"""Sends: checks, stored properties, retries and dead letters, exactly once, answers."""
