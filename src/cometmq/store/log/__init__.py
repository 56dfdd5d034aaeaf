"""The commit log: mapped files, append, flush, and walks over its records."""
