"""Requests and answers over connections: server, client, TLS, time-outs, back-pressure, hooks, metrics.

One `Connection` serves both directions and both sides; `RemotingServer` accepts connections, `RemotingClient`
opens and shares them. Handlers are plain functions in a `HandlerTable`, marked with `@handles(code, header)`.
"""
