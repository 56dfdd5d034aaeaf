"""The producer and our own broker."""

from tests.behaviour.cases_producer import *  # noqa: F403
