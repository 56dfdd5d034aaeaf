"""Transactions, pops and timers beside Apache's."""
