"""The first thing a newcomer runs."""

from __future__ import annotations

import subprocess
import sys

import pytest

PATIENCE_S = 280
"""Spark has to start on a busy machine."""


def run_program(path: str, *arguments: str) -> str:
    result = subprocess.run(
        [sys.executable, path, *arguments], capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    assert result.returncode == 0, result.stdout + result.stderr
    assert result.stderr == ""
    return result.stdout


@pytest.mark.timeout(PATIENCE_S + 20)
def test_the_quickstart_shows_the_system_end_to_end_and_leaves_nothing_running() -> None:
    """B4, B6, B10, P4, C1, C5, D1: send, consume, retry, find by key, survive a kill, stream, stop."""
    shown = run_program("examples/quickstart.py")
    assert "1000 orders sent" in shown
    assert "SEND_OK" in shown
    assert "900 paid, 100 refunded" in shown
    assert "order-7 failed once and came back: 2 attempts" in shown
    assert "order-42: 'order 42' in orders@broker-0:" in shown
    assert "30000 sends, 64 at a time, each acknowledged" in shown
    assert "30000 consumed" in shown
    assert "1000 of 1000 orders are there" in shown
    assert "1000 messages, 0 still waiting" in shown
    assert "|orders|    paid|  900|" in shown
    assert "|orders|refunded|  100|" in shown
    assert "stopped with exit code 0" in shown
    assert shown.count("clicks ") == 4  # its four queues in the list of what the store holds


def test_the_tour_of_the_store_recovers_every_message() -> None:
    """B4, B5: synchronous flush, a process that ends without a word, recovery, verification."""
    shown = run_program("examples/store_tour.py")
    assert "recovered: 20000 messages" in shown
    assert "0 findings in 20000 messages" in shown
