"""Topics: their table, attributes and names."""
