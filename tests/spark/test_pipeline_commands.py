"""Pipelines from the command line, on the session of the tests."""

from __future__ import annotations

from pathlib import Path

from cometmq import Message
from tests.integration.cli.cli_kit import Cometmq
from tests.spark.live_kit import Live
from tests.spark.sink_kit import bodies
from tests.unit.spark.stores_kit import files_below
from tests.unit.store.store_vectors import unpack_clean_store

STORE = """
mappedFileSizeCommitLog=1048576
mappedFileSizeConsumeQueue=60000
maxHashSlotNum=500
maxIndexNum=2000
messageDelayLevel=1s 2s 3s 4s 5s 6s 7s 8s 9s 10s 20m 30m 1h 2h
"""
"""The settings of the broker that wrote the store."""


def test_an_archive_is_made_by_its_definition_and_replayed_by_flags(live: Live, tmp_path: Path) -> None:
    """D3: one command each."""
    topic, target = live.topic(queues=2), live.topic(queues=1)
    live.send_numbers(topic, range(20))
    output, definition = tmp_path / "archive", tmp_path / "archive.toml"
    definition.write_text(f'topics = "{topic}"\noutput = "{output}"\n')
    cometmq = Cometmq(live.rocketmq.namesrv)

    first = cometmq.ok("pipeline", "archive", "-f", str(definition), "--json")
    second = cometmq.ok("pipeline", "archive", "-f", str(definition))
    place = ("--archive", str(output), "--checkpoint", str(tmp_path / "replay"))
    copied = cometmq.ok("pipeline", "replay", *place, "--to-topic", target)

    assert (first.json["rows"], first.json["batches"], first.json["interrupted"]) == (20, 1, False)
    assert "archive: 20 messages" in first.err
    assert second.out == f"0 messages in 0 batches archived in {output}\n"
    assert copied.out == f"20 messages sent to {target}, 1 of 1 step done\n"
    assert sorted(map(int, bodies(live.rocketmq, target))) == list(range(20))


def test_the_answer_to_a_query_is_a_table_or_json(live: Live) -> None:
    """D1"""
    topic = live.topic()
    live.send(*(Message(topic, b"x", tags="paid") for _ in range(3)))
    cometmq = Cometmq(live.rocketmq.namesrv)
    query = f"SELECT tags, count(*) AS n FROM `{topic}` GROUP BY tags"
    shown = cometmq.ok("pipeline", "sql", query)
    document = cometmq.ok("pipeline", "sql", query, "--json").json
    wrong = cometmq("pipeline", "sql", "SELECT 1", "--to-topic", "a", "--output", "b")
    assert shown.out.split() == ["tags", "n", "paid", "3"]
    assert document == {"columns": ["tags", "n"], "rows": [["paid", 3]], "cut": False, "batch": None}
    assert (wrong.code, wrong.err) == (2, "error: output and toTopic exclude each other; give one of them\n")


def test_a_store_gets_its_queues_back(live: Live, tmp_path: Path) -> None:
    """D2: as the broker of the store wrote them."""
    whole = unpack_clean_store(tmp_path / "whole", "")
    root = unpack_clean_store(tmp_path / "log", "commitlog", "config", "checkpoint")
    config = tmp_path / "broker.conf"
    config.write_text(STORE)
    rebuilt = Cometmq(live.rocketmq.namesrv).ok(
        "pipeline", "rebuild", str(root), "-c", str(config), "--yes", "--json"
    )
    assert rebuilt.json["messages"] == 153
    assert files_below(root / "consumequeue") == files_below(whole / "consumequeue")
