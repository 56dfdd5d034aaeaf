"""The programs in `examples/` do what they say, run the way a reader runs them."""

from __future__ import annotations

import signal
import subprocess
import sys

from cometmq.testing import EmbeddedBroker


def run_example(name: str, broker: EmbeddedBroker) -> str:
    result = subprocess.run(
        [sys.executable, f"examples/{name}.py", broker.namesrv],
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    assert result.stderr == ""
    return result.stdout


def test_the_consumer_bills_what_the_producer_sends_and_stops_when_told(rocketmq: EmbeddedBroker) -> None:
    """P4, C1, C5: send one at a time; consume with tags; an orderly end."""
    sent = run_example("produce", rocketmq)
    assert sent.count(" is in orders@embedded:") == 10
    process = subprocess.Popen(
        [sys.executable, "examples/consume.py", rocketmq.namesrv], stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        billed = sorted(process.stdout.readline().strip() for _ in range(10))
        assert billed == sorted(f"billed order {number} (paid)" for number in range(10))
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
    finally:
        process.kill()
        process.communicate()


def test_the_steps_of_each_order_come_in_order(rocketmq: EmbeddedBroker) -> None:
    """P4, C5: one queue a sharding key, ordered consumption."""
    shown = run_example("in_order", rocketmq).splitlines()
    assert shown == [f"order-{order}: created, paid, packed, shipped" for order in range(5)]


def test_batches_and_concurrent_sends_are_acknowledged(rocketmq: EmbeddedBroker) -> None:
    """P4: batches; many sends at a time."""
    shown = run_example("async_batches", rocketmq)
    assert "1000 in batches" in shown
    assert "100 at the same time: SEND_OK" in shown


def test_a_pull_consumer_reads_everything_and_commits(rocketmq: EmbeddedBroker) -> None:
    """C1: assign, seek, poll, commit."""
    shown = run_example("pull", rocketmq)
    assert "20 entries from 4 queues" in shown
    assert sum(int(line.rpartition(" ")[2]) for line in shown.splitlines()[1:]) == 20


def test_a_delayed_message_comes_after_its_delay(rocketmq: EmbeddedBroker) -> None:
    """B6: delay levels."""
    shown = run_example("delayed", rocketmq)
    assert shown.startswith("drink some water: after ")
    assert 1.0 <= float(shown.split()[-2]) < 30


def test_the_fixture_of_the_package_gives_a_test_its_own_broker() -> None:
    """The plugin is found by pytest without any configuration."""
    result = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "examples/test_with_a_broker.py"],
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )
    assert "1 passed" in result.stdout, result.stdout + result.stderr
