"""Topics that would lead out of a store or an archive, on Spark."""

from __future__ import annotations

from pathlib import Path

import pytest

from cometmq.ports.names import UnsafeNameError, child
from cometmq.spark.pipelines.archive.publish import escaped
from cometmq.spark.rebuild.dispatch import DispatchRules

LEADING_OUT = ["../outside", "..", ".", "", "/tmp/outside", "a\0b", "x" * 300]


@pytest.mark.parametrize("topic", LEADING_OUT)
@pytest.mark.parametrize("is_known", [False, True])
def test_a_rebuild_makes_no_queues_for_them(topic: str, is_known: bool) -> None:
    """Also if somebody wrote them into topics.json."""
    rules = DispatchRules(
        known_topics=frozenset({topic}) if is_known else None,
        old_topics=frozenset(),
        batch_topics=frozenset(),
        delays_ms={},
        delay_levels="1s",
        has_index=True,
    )
    assert not rules.has_queues(topic)
    assert is_known or rules.has_queues("orders")


@pytest.mark.parametrize("topic", LEADING_OUT)
def test_an_archive_has_them_in_a_folder_of_its_own_or_not_at_all(topic: str, tmp_path: Path) -> None:
    try:
        place = child(tmp_path, f"topic={escaped(topic)}", "day=2026-01-31")
    except UnsafeNameError:
        assert "\0" in topic or len(topic) > 255
    else:
        assert place.resolve().parent.parent == tmp_path.resolve()
