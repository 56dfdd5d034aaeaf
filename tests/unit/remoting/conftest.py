"""Fixtures for the tests of remoting."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def unhurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine a turn of 20 ms may end in the middle of a test that is not about turns."""
    monkeypatch.setattr("cometmq.remoting.connection._TURN_S", 60.0)
