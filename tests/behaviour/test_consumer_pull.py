"""The pull consumer and our own broker."""

from tests.behaviour.cases_consumer_pull import *  # noqa: F403
