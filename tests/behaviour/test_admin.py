"""The admin client and our own servers."""

from tests.behaviour.cases_admin import *  # noqa: F403
