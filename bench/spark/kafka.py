"""Kafka as a child process, the peer of the Spark path.

Rules kept here:
- One process is broker and controller, with the settings that Kafka comes with and the heap that its own
  scripts give it.
- Topics are made before anything is written: a producer that makes one by writing to it may send batches of
  one partition before and after it is there, and then waits for ever for their order.
- The jars are where `make bench` puts them; nothing is fetched from here.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.compat.jvm import PEERS, SHORT_LIFE
from tests.compat.process import Server, ServerError, free_port, properties_text

LIB = PEERS / "kafka" / "lib"
SPARK_JARS = PEERS / "kafka" / "spark"
HEAP = ("-Xms1g", "-Xmx1g")
CLUSTER_ID = "Y29tZXRtcS1iZW5jaC0wMA"
_TOOL_SECONDS = 120.0


def spark_jars() -> str:
    """What Spark needs to read and write Kafka, as it wants to be told."""
    jars = sorted(map(str, SPARK_JARS.glob("*.jar")))
    if not jars:
        raise ServerError("the jars of Spark's Kafka source are missing: `make bench` fetches them")
    return ",".join(jars)


class KafkaServer(Server):
    """One Kafka, which is a cluster."""

    ready_text = "Kafka Server started"

    def __init__(self, home: Path) -> None:
        super().__init__(home, free_port(1))

    def configure(self) -> None:
        if not LIB.is_dir():
            raise ServerError("the jars of Kafka are missing: `make bench` fetches them")
        controller = f"127.0.0.1:{self.port + 1}"
        settings = {
            "process.roles": "broker,controller",
            "node.id": "1",
            "listeners": f"PLAINTEXT://{self.address},CONTROLLER://{controller}",
            "advertised.listeners": f"PLAINTEXT://{self.address}",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.voters": f"1@{controller}",
            "log.dirs": str(self.home / "data"),
            "auto.create.topics.enable": "false",
            "offsets.topic.replication.factor": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
        }
        (self.home / "server.properties").write_text(properties_text(settings))
        if not (self.home / "data").is_dir():
            self._format()

    def _format(self) -> None:
        self._run("kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", "server.properties")

    def create_topic(self, topic: str, partitions: int) -> None:
        place = ("--bootstrap-server", self.address, "--topic", topic)
        shape = ("--partitions", str(partitions), "--replication-factor", "1")
        self._run("org.apache.kafka.tools.TopicCommand", "--create", *place, *shape)

    def _run(self, main: str, *args: str) -> None:
        """Run one of Kafka's tools to its end."""
        command = [*self._java(*SHORT_LIFE), main, *args]
        done = subprocess.run(
            command, cwd=self.home, capture_output=True, text=True, timeout=_TOOL_SECONDS, check=False
        )
        if done.returncode:
            raise ServerError(f"{main} ended with {done.returncode}:\n{done.stdout}{done.stderr}")

    def command(self) -> list[str]:
        return [*self._java(*HEAP, "-server", "-XX:+UseG1GC"), "kafka.Kafka", "server.properties"]

    def _java(self, *options: str) -> list[str]:
        return ["java", *options, f"-Duser.home={self.home}", "-cp", f"{LIB}/*"]
