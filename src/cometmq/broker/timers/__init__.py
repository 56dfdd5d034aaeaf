"""Messages with a delivery time: timed messages on the timer wheel, and delay levels.

`schedule` makes a message wait in the timer topic; `enqueue` takes it from there into the timer log and the
wheel; `deliver` puts it into its queue when it is due; `service` runs both and saves the files;
`delay_levels` delivers the 18 delay levels.
"""
