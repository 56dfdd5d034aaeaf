"""Push and pull consumers: rebalance, pull, process queues, offsets, send-back."""
