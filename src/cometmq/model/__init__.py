"""Values everyone speaks: messages, queues, topics, routes, errors. No I/O, no bytes, no clock."""

from cometmq.model.peer_text import escape_peer_text

escape_peer_text()  # every room that logs imports something of here
