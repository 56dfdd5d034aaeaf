"""Rebalance listeners and our own broker."""

from tests.behaviour.cases_rebalance_listener import *  # noqa: F403
