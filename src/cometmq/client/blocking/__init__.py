"""Blocking producers, consumers and administration over a background event loop."""
