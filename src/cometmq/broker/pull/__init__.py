"""Pulls: checks, filters, long polling, cold reads."""
