"""The first thing a newcomer runs."""

from __future__ import annotations

import subprocess
import sys


def test_the_quickstart_shows_the_system_end_to_end_and_leaves_nothing_running() -> None:
    """N2, N4, N6, N7, N8, B4, B5: start, routes, KV configuration, removal, stop; a store that recovers."""
    result = subprocess.run(
        [sys.executable, "examples/quickstart.py"], capture_output=True, text=True, timeout=60, check=False
    )
    shown = result.stdout
    assert result.returncode == 0, shown + result.stderr
    assert "orders: 4 queues on broker-a at 127.0.0.1:10911" in shown
    assert "orders: 4 queues on broker-b at 127.0.0.1:20911" in shown
    assert "nowhere: No topic route info in name server for the topic: nowhere" in shown
    assert "ORDER_TOPIC_CONFIG orders = broker-a:4;broker-b:4" in shown
    before, after = shown.split("A store takes")[0].split("shipments left after")
    assert "shipments: 4 queues on broker-b" in before
    assert "broker-a" in after
    assert "broker-b" not in after
    assert "name server stopped with exit code 0" in shown
    assert "recovered: 20000 messages" in shown
    assert "0 findings in 20000 messages" in shown
    assert result.stderr == ""
