"""A pipeline of Spark Declarative Pipelines reads one topic and writes another (D2)."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from cometmq import Admin, Message, Producer, PullConsumer
from cometmq.testing import EmbeddedBroker

EXAMPLE = Path(__file__).parents[2] / "examples" / "declarative_pipeline"
RUN_S = 300.0


def run_pipeline(folder: Path, namesrv: str) -> None:
    """As `spark-pipelines run` does it, with everything that it keeps in one folder."""
    shutil.copytree(EXAMPLE, folder)
    spec = folder / "spark-pipeline.yml"
    text = spec.read_text(encoding="utf-8")
    spec.write_text(text.replace("/tmp/cometmq-declarative-pipeline", f"{folder}/storage"), encoding="utf-8")
    result = subprocess.run(
        [str(Path(sys.executable).parent / "spark-pipelines"), "run", "--spec", str(spec)],
        env={**os.environ, "COMETMQ_NAMESRV": namesrv, "PYSPARK_PYTHON": sys.executable},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=RUN_S,
        check=False,
    )
    assert result.returncode == 0, result.stdout[-2000:] + result.stderr[-4000:]


@pytest.mark.timeout(400)
def test_paid_orders_flow_from_one_topic_into_another_once(rocketmq: EmbeddedBroker, tmp_path: Path) -> None:
    with Admin(namesrv=rocketmq.namesrv) as admin, Producer("shop", namesrv=rocketmq.namesrv) as producer:
        for topic in ("orders", "paid-orders"):
            admin.create_topic(topic, queues=2)
        for number in range(20):
            tags = "paid" if number % 2 else "open"
            producer.send(Message("orders", b"%d" % number, tags=tags, keys=[f"order-{number}"]))

    run_pipeline(tmp_path / "pipeline", rocketmq.namesrv)

    paid: dict[bytes, tuple[str | None, tuple[str, ...]]] = {}
    with PullConsumer("auditors", namesrv=rocketmq.namesrv) as consumer:
        queues = consumer.queues("paid-orders")
        assert sum(consumer.max_offset(queue) for queue in queues) == 10
        consumer.assign(queues)
        for queue in queues:
            consumer.seek_to_beginning(queue)
        while len(paid) < 10:
            for message in consumer.poll(timeout_s=10):
                paid[bytes(message.body)] = (message.tags, tuple(message.keys))
    assert paid == {b"%d" % number: ("paid", (f"order-{number}",)) for number in range(1, 20, 2)}
