"""The `cometmq` command: one module a command group; each parses, calls, and prints."""
