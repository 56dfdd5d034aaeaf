"""The client instance, which producers and consumers share: connections, routes, heartbeats, identity."""
