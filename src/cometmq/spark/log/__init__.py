"""The log source: the files of a store, read without a broker."""
