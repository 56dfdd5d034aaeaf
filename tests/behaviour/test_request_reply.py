"""Requests, replies and our own broker."""

from tests.behaviour.cases_request_reply import *  # noqa: F403
