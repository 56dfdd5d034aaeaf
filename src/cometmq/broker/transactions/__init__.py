"""Transactions: half messages, which consumers see when their producer commits.

`half_messages` makes and copies them; `end` commits and rolls back; `op_queue` keeps which have ended;
`check` asks producers about the open ones; `service` runs it.
"""
