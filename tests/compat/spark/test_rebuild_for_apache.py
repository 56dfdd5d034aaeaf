"""Queues and index that were made on Spark: Apache's broker starts with them, and finds everything."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.compat.cluster import MakeNamesrv
from tests.compat.store.store_kit import GROUP, assert_dense, by_place, running_exchange, unique_ids, unnamed
from tests.compat.store.store_messages import ALL_TOPICS, BAZAAR, burst, large_ones, singles

RUN_S = 300.0


@pytest.mark.timeout(600)
def test_apache_serves_a_store_whose_queues_and_index_were_made_on_spark(
    tmp_path: Path, make_namesrv: MakeNamesrv
) -> None:
    """D3: `cometmq pipeline rebuild`, on a store from which both were removed."""
    with running_exchange(tmp_path, make_namesrv, "broker-rebuilt") as exchange:
        next_id = unique_ids()
        for messages in (singles(next_id), large_ones(next_id), burst(next_id)):
            exchange.put(messages)
        root = exchange.config.root
        shutil.rmtree(root / "consumequeue")
        shutil.rmtree(root / "index")
        settings = tmp_path / "broker.conf"
        settings.write_text("".join(f"{name}={value}\n" for name, value in exchange.settings.items()))

        command = [sys.executable, "-m", "cometmq.cli.main", "pipeline", "rebuild", str(root)]
        command += ["-c", str(settings), "--yes", "--json"]
        environment = {**os.environ, "PYSPARK_PYTHON": sys.executable}
        run = subprocess.run(command, capture_output=True, text=True, timeout=RUN_S, env=environment)
        assert run.returncode == 0, run.stdout[-2000:] + run.stderr[-2000:]
        assert json.loads(run.stdout)["messages"] >= len(exchange.written)

        exchange.start_apache()
        read = exchange.shell.read(GROUP, ALL_TOPICS)
        assert by_place(read) == by_place(exchange.written)
        assert_dense(read)
        wanted = [message for message in exchange.written if message.topic == BAZAAR and message.keys][:20]
        assert wanted
        for message in wanted:
            assert unnamed(message) in exchange.shell.find_key(BAZAAR, message.keys[0])
        found = exchange.shell.find_unique(BAZAAR, *(message.msg_id for message in wanted))
        assert found == [unnamed(message) for message in wanted]
