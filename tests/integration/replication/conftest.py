"""What the tests of pairs share."""

from __future__ import annotations

import pytest

from cometmq.broker.cluster import table_copies


@pytest.fixture(autouse=True)
def _quick_copies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("LOOK_S", "OFFSETS_S", "EVERYTHING_S"):
        monkeypatch.setattr(table_copies, name, 0.1)
