"""The push consumer and our own broker."""

from tests.behaviour.cases_consumer import *  # noqa: F403
