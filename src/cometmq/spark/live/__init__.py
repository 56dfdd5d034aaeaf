"""The live source: a batch or stream of a running cluster's topics."""
