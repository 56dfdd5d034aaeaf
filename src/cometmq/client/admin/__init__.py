"""Administration of topics, groups, messages and brokers."""
