"""Consumer groups: their table, who is online, subscriptions, offsets, locks, assignment."""
