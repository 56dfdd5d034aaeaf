"""Spark sources and sinks beside Kafka's."""
