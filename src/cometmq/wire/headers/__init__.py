"""The declared headers, one module a family."""
