"""Messages that consumers see when their sender's transaction has succeeded.

`halves` has what becomes of the message itself; `ends` keeps which transactions have ended; `ending` carries
out what a producer says; `checking` asks producers that said nothing; `service` runs it.
"""
