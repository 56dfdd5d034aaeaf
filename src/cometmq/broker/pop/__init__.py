"""Pop consumption: messages are handed out for a time, and come back unless they are acknowledged.

`popping` hands messages out and writes a checkpoint for each queue that it took some from; `acks` takes
acknowledgements and changes of the invisible time; `revive` brings back what was not acknowledged in time;
`orders` keeps groups that pop in order from getting ahead of themselves; `waiting` holds requests until there
is something; `progress` remembers over a crash how far each group has popped.

Checkpoints and acknowledgements are messages of the revive topic, which reach it through the timers when they
are due. They are Apache's, so that what one broker has handed out the other one brings back.
"""
