"""The broker: takes messages, keeps them in its store, and gives them to consumers.

`context.py` holds what everybody shares; `handlers/` answers one family of requests a module and is the place
to add a request code; `broker.py` puts them behind ports, announces the broker and keeps it running.
"""
