"""Master and slave of one name: ours behind ours, ours behind Apache's, Apache's behind ours."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.compat.apache import Broker
from tests.compat.ask import SUCCESS, ask, brokers_of
from tests.compat.jvm import mqadmin
from tests.compat.replication.pairs_kit import (
    FILE_SIZE,
    PAIRS,
    SYNC_S,
    TOPIC,
    TYPED,
    a_pair,
    assert_equal_logs,
    create_topic,
    follows,
    home,
    send,
    topics_of,
    wait_equal,
)
from tests.waiting import wait_until


@pytest.mark.parametrize(("master", "slave"), PAIRS)
def test_the_logs_are_equal_over_several_files_and_restarts(tmp_path: Path, master: str, slave: str) -> None:
    """B11: byte for byte, with both copies behind every SEND_OK."""
    with a_pair(tmp_path, master, slave) as pair:
        create_topic(pair.master, TOPIC)
        assert set(send(pair.master, 1500)) == {SUCCESS}
        assert set(send(pair.master, 5, size=200_000)) == {SUCCESS}
        end = wait_equal(pair)
        assert end > FILE_SIZE
        assert_equal_logs(pair, end)

        pair.slave.stop()
        alone = ask(pair.master.address, 25, body=b"slaveTimeout=100\n")
        assert alone.code == SUCCESS
        codes = send(pair.master, 3)
        assert set(codes) == {12}  # FLUSH_SLAVE_TIMEOUT
        assert ask(pair.master.address, 25, body=b"slaveTimeout=10000\n").code == SUCCESS
        pair.slave.start()
        wait_until(lambda: follows(pair), "the slave follows again", seconds=SYNC_S)
        wait_equal(pair)
        assert set(send(pair.master, 1500)) == {SUCCESS}

        pair.slave.kill()
        pair.slave.start()
        wait_until(lambda: follows(pair), "the slave follows after a kill", seconds=SYNC_S)
        pair.master.kill()
        pair.master.start()
        pair.master.wait_registered(pair.namesrv.address)
        wait_until(lambda: follows(pair), "the slave follows a master that was killed", seconds=SYNC_S)
        assert set(send(pair.master, 500)) == {SUCCESS}
        end = wait_equal(pair)
        assert end > 2 * FILE_SIZE
        pair.slave.stop()
        pair.master.stop()
        assert_equal_logs(pair, end)
        for broker, kind in ((pair.master, master), (pair.slave, slave)):
            if kind == "comet":
                verify(broker)


def verify(broker: Broker) -> None:
    store = [broker.settings["storePathRootDir"], "-c", str(broker.config_file)]
    command = [sys.executable, "-m", "cometmq.cli.main", "store", "verify", *store]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert ended.returncode == 0, ended.stdout + ended.stderr


@pytest.mark.parametrize(("master", "slave"), PAIRS)
def test_a_slave_is_in_the_route_and_keeps_the_topics(tmp_path: Path, master: str, slave: str) -> None:
    """B11: also those with attributes, which a slave of Apache 5.3.3 loses behind its own master."""
    with a_pair(tmp_path, master, slave) as pair:
        create_topic(pair.master, TOPIC)
        create_topic(pair.master, TYPED, "+message.type=FIFO")
        members = {"0": pair.master.address, "1": pair.slave.address}
        wait_until(
            lambda: {str(key): each for key, each in brokers_of(pair.namesrv.address)["broker-a"].items()},
            "both are registered",
            lambda found: found == members,
            seconds=SYNC_S,
        )
        asked = "haStatus", "-b", pair.master.address
        shown = mqadmin(*asked, namesrv=pair.namesrv.address, home=home(tmp_path / "admin"))
        assert "127.0.0.1" in shown
        wanted = {TOPIC, TYPED}
        copied = wait_until(
            lambda: topics_of(pair.slave),
            "the slave has the topics",
            lambda found: wanted <= found.keys(),
            seconds=SYNC_S,
        )
        assert copied[TYPED]["attributes"] == {"message.type": "FIFO"}
