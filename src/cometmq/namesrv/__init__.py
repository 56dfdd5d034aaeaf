"""The name server: the registry of brokers and their topics.

`tables.py` holds the registry as plain data and pure rules; `handlers/` answers one family of requests a
module and is the place to add a request code; `service.py` puts them behind a port and watches the brokers.
"""
