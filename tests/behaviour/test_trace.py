"""Message traces and our own broker."""

from tests.behaviour.cases_trace import *  # noqa: F403
