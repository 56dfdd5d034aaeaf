"""Bytes to values and back, without I/O and without a clock.

Where to add a request code: its number in `codes.py`, its header struct in the module of `headers/` that
its family has. Encoding, decoding and validation follow from the declaration. The handler then goes into the
server that answers it (`namesrv/handlers/`).
"""
