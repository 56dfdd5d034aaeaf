"""Commands that run servers: `broker`, `namesrv`, `standalone`."""
