"""The bodies of requests and answers that are not messages: one module a family."""
