"""Replication: RocketMQ's HA protocol, which copies the commit log of a master to its slaves.

The rules are in state machines that take bytes and times and return bytes: `feed` is the master's side of a
connection, `follow` the slave's, `copies` the sends that wait for replicas. `server` and `client` connect
them with sockets.
"""
