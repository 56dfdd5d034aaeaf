"""Two whole clusters, Apache's and ours, in the same state, and the same `mqadmin` commands run on both.

Rules kept here:
- Both clusters are prepared by the same steps; the clients in them are Apache's.
- Outputs are compared after times, places and what is measured were replaced; nothing else is left out.
- A broker applies some changes a moment after it answered: a step that reads such a thing is repeated until
  its output shows what it is about.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.compat.apache import AdminShell, Broker, Server
from tests.compat.ask import SUCCESS, ask, is_routed
from tests.compat.client.normal import sorted_lines, without_places
from tests.compat.client.subject import Subject
from tests.compat.foreign import Listening, Sender
from tests.compat.foreign_clients import JavaClient
from tests.waiting import wait_until

AWAIT_SECONDS = 30.0
POLL_SECONDS = 0.5
UPDATE_CONSUMER_OFFSET = 15
UPDATE_GROUP = 200
PARADE = "Parade"
READERS = "readers"
SLEEPERS = "sleepers"
PAINTERS = "painters"
MESSAGES = 12
QUEUES = 4

# What commands read, in the folder of the cluster.
FILES = {
    "topics.json": [
        {"topicName": "Listed-1", "readQueueNums": 3, "writeQueueNums": 3},
        {"topicName": "Listed-2", "readQueueNums": 1, "writeQueueNums": 2, "perm": 4},
    ],
    "groups.json": [{"groupName": "listed-1"}, {"groupName": "listed-2", "retryMaxTimes": 3}],
}

# What names a moment, a machine or a client, whichever the command.
_MOMENTS = (
    (r"\b\d{4}-\d\d-\d\d \d\d:\d\d:\d\d([,.]\d+)?", "<date>"),
    (r"\b1[0-9]{12}\b", "<time>"),
    (r"\b[0-9A-F]{56}\b|\b[0-9A-F]{32}\b", "<id>"),
    (r"(V5_[35]_\d|CometMQ_[0-9.]+)\s*", "<version> "),
    (r"driver-\d+-\d+ *", "<client> "),  # with the rest of its column, since a process id has 3 to 7 digits
    (r"127\.0\.0\.1:\d+", "<peer>"),
    (r"\b\d+\.\d+\.\d+\.\d+@", "<machine>@"),
)


@dataclass(frozen=True)
class Step:
    """One command, and a part of its output that shows that it did what the step is about; "" is no output.

    Names in braces stand for places and values of the cluster that the command runs in.
    """

    command: str
    shows: str
    # Rows whose order Apache's hash tables decide.
    any_order: bool = False
    # What the broker has a moment later.
    awaits: bool = False
    # Regular expressions of what is measured.
    measured: Sequence[str] = ()
    # Regular expressions of what is left out, for a reason that is said where it is used.
    without: Sequence[str] = ()
    # What the command writes, in the folder of the cluster; it is compared too.
    file: str | None = None
    # A value that later steps need: its name, and the regular expression that finds it in the output.
    keeps: tuple[str, str] | None = None

    @property
    def id(self) -> str:
        return re.sub(r"[^\w.]+", "_", self.command)[:60]


@dataclass
class AdminCluster:
    """A name server and a broker of the same kind, with clients in it, and the shell that administers it."""

    namesrv: Server
    broker: Broker
    painters: Sender
    readers: Listening
    shell: AdminShell
    folder: Path
    values: dict[str, str] = field(default_factory=dict)

    def run(self, step: Step) -> str:
        """What a command prints and writes, with what must differ between clusters replaced."""
        names = {
            "broker": self.broker.address,
            "namesrv": self.namesrv.address,
            "folder": str(self.folder),
            **self.values,
        }
        args = [re.sub(r"\{(\w+)\}", lambda match: names[match[1]], part) for part in step.command.split()]
        deadline = time.monotonic() + AWAIT_SECONDS
        while True:
            printed = self.shell.run(*args, namesrv=self.namesrv.address)
            if step.file is not None:
                printed += (self.folder / step.file).read_text()
            if step.keeps is not None:
                found = re.search(step.keeps[1], printed)
                assert found is not None, printed
                self.values[step.keeps[0]] = found[1]
            text = self._normal(printed, step)
            if not step.awaits or step.shows in text or time.monotonic() > deadline:
                return text
            time.sleep(POLL_SECONDS)

    def _normal(self, text: str, step: Step) -> str:
        places = {
            self.namesrv.address: "namesrv",
            self.broker.address: "broker",
            str(self.namesrv.port): "namesrv port",
            str(self.broker.port): "broker port",
            str(self.broker.port + 1): "replication port",
            str(self.namesrv.home): "namesrv home",
            str(self.broker.home): "broker home",
            str(self.folder): "folder",
        }
        text = without_places(text, places)
        for pattern, name in _MOMENTS:
            text = re.sub(pattern, name, text)
        for pattern in step.without:
            text = re.sub(pattern, "", text)
        for pattern in step.measured:
            text = re.sub(pattern, "<measured>", text)
        return sorted_lines(text) if step.any_order else text.rstrip("\n")


@contextmanager
def running_admin_cluster(
    folder: Path, namesrv: Server, broker: Broker, shell: AdminShell
) -> Iterator[AdminCluster]:
    """Start a cluster with clients in it that wait for messages."""
    folder.mkdir(parents=True, exist_ok=True)
    with namesrv, broker, JavaClient(folder / "client", namesrv.address) as client:
        broker.wait_registered(namesrv.address)
        for name, content in FILES.items():
            (folder / name).write_text(json.dumps(content))
        subject = Subject(namesrv, broker)
        subject.create_topic(PARADE, queues=QUEUES)
        subject.create_topic(f"%RETRY%{SLEEPERS}", queues=1)
        group = json.dumps({"groupName": SLEEPERS}).encode()
        assert ask(broker.address, UPDATE_GROUP, body=group).code == SUCCESS
        painters = client.producer(PAINTERS, heartbeatMillis=1000)
        readers = client.push(READERS, PARADE)
        retries = f"%RETRY%{READERS}"
        wait_until(lambda: is_routed(namesrv.address, retries), seconds=30, what=f"{retries} has a route")
        yield AdminCluster(namesrv, broker, painters, readers, shell, folder)


def fill(cluster: AdminCluster) -> None:
    """Put messages into the topic; one group that is there reads all of them, another is behind and gone."""
    for number in range(MESSAGES):
        sent = cluster.painters.send(
            PARADE,
            f"message {number}",
            form="queue",
            tags="red" if number % 3 else "blue",
            keys=f"key-{number}",
            brokerName=cluster.broker.name,
            queueId=number % QUEUES,
        )
        if number == 0:
            cluster.values |= {"unique_id": sent[0].msg_id, "offset_id": sent[0].offset_msg_id}
    cluster.values["reader"] = cluster.readers.client_id
    cluster.readers.wait_for([f"message {number}" for number in range(MESSAGES)])
    Subject(cluster.namesrv, cluster.broker).wait_for_progress(READERS, PARADE, queues=QUEUES)
    for queue_id in range(QUEUES):
        fields = {
            "consumerGroup": SLEEPERS,
            "topic": PARADE,
            "queueId": str(queue_id),
            "commitOffset": "1",
        }
        assert ask(cluster.broker.address, UPDATE_CONSUMER_OFFSET, fields).code == SUCCESS
