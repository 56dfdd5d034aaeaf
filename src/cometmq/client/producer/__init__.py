"""Producers: choose a queue, send, retry, request and reply, transactions."""
