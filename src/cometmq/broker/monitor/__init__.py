"""Statistics, metrics and runtime info."""
