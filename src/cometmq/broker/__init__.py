"""The broker: takes messages, keeps them in its store, and gives them to consumers.

`broker.py` builds and runs it; `context.py` has the parts that request handlers use; `handlers/` has one
module per family of requests, where request codes are added.
"""
