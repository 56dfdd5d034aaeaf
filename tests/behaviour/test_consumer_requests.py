"""What brokers ask of a consumer, with our own broker."""

from tests.behaviour.cases_consumer_requests import *  # noqa: F403
