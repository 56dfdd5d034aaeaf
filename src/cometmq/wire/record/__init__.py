"""Records of the commit log and messages on the wire: layout, properties, batches, compression, ids."""
