"""Tools for tests, of CometMQ and of programs that use it: a clock that jumps, files that fail."""
