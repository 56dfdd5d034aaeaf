"""The key index: its files, hashes and recovery."""
