"""The consumer that keeps order and our own broker."""

from tests.behaviour.cases_consumer_ordered import *  # noqa: F403
