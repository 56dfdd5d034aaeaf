"""Messages that are delivered at a time of their own: set, kept in the timer wheel, delivered, taken back.

`setting` turns a message into one that waits in the timer topic; `enqueuing` brings it from there into the
timer log and the wheel; `delivery` brings it from there into its queue when it is due; `service` runs both,
and keeps the files safe.
"""
