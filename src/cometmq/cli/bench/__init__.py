"""`cometmq bench`: loads against a running cluster, and their figures."""
