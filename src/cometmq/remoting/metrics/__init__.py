"""Metrics of a server: counters by request code, Prometheus families, and the HTTP server for them."""
