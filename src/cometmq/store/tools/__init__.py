"""Tools for a store that no broker serves: inspect, dump, verify, rebuild, repair."""
