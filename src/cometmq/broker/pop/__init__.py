"""Pop consumption: messages are given for an invisible time, and come back unless they are acknowledged.

`pop` gives messages and writes a checkpoint for each queue; `acks` takes acknowledgements and changes of the
invisible time; `revive` brings back unacknowledged messages; `consumer_order` keeps groups that pop in order
from getting ahead; `long_polling` holds requests until there is a message; `offset_recovery` remembers over a
crash how far each group has popped.

Checkpoints and acknowledgements are messages of the revive topic, which reach it through the timers when they
are due. They have Apache's format: either broker revives the pops of the other.
"""
