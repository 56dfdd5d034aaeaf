"""What all producers and consumers of a process share: connections, routes, heartbeats, identity."""
