"""Messages in transactions and our own broker."""

from tests.behaviour.cases_transactions import *  # noqa: F403
