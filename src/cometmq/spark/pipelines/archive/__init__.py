"""Archive a topic as Parquet."""
