"""Foreign clients: programs in their own language that do what a test tells them and report what they see.

Every program speaks the same lines of JSON: `{"id": 1, "do": "send", ...}` goes in, `{"id": 1, "ok": ...}`
or `{"id": 1, "error": ...}` comes out, and in between what consumers were given, as
`{"consumer": "...", "messages": [...]}`. The tests are in Python, whatever the client is in.

Rules kept here:
- A command that failed there fails here, with the code and the sentence that the client had.
- What a consumer was given is kept in the order in which the client reported it.
- Every client has a home folder of its own, and no program outlives its test.
"""

from __future__ import annotations

import atexit
import itertools
import subprocess
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any, Self, TypeVar

import msgspec

from tests.compat.jvm import java_environment
from tests.waiting import wait_until

CALL_SECONDS = 40.0
DELIVERY_SECONDS = 45.0
STDERR_TAIL = 4000

_numbers = itertools.count(1)
_running: set[subprocess.Popen[bytes]] = set()


def fresh(what: str) -> str:
    """A name that no other test of this run uses."""
    return f"{what}-{next(_numbers)}"


class ForeignError(Exception):
    """A command failed in the foreign client; `code` is the broker's or the client's, if there is one."""

    def __init__(self, text: str, code: int = -1) -> None:
        super().__init__(text)
        self.code = code


class Sent(msgspec.Struct, rename="camel", frozen=True):
    """What a producer was told about a message."""

    status: str
    msg_id: str = ""
    offset_msg_id: str = ""
    broker_name: str = ""
    queue_id: int = -1
    queue_offset: int = -1


class Received(msgspec.Struct, rename="camel", frozen=True):
    """A message as a client shows it; a client that does not show something leaves it at its default."""

    body: bytes
    topic: str = ""
    msg_id: str = ""
    offset_msg_id: str = ""
    broker_name: str = ""
    queue_id: int = -1
    queue_offset: int = -1
    reconsume_times: int = 0
    flag: int = 0
    born_timestamp: int = 0
    store_timestamp: int = 0
    properties: dict[str, str] = {}
    at: int = 0

    @property
    def text(self) -> str:
        return self.body.decode()


class Given(msgspec.Struct, frozen=True):
    """The messages of one call of a listener."""

    consumer: str
    messages: list[Received]


class _Line(msgspec.Struct):
    id: int | None = None
    ok: Any = None
    error: str | None = None
    code: int = -1
    consumer: str | None = None
    messages: msgspec.Raw = msgspec.Raw()


class Listening:
    """A push consumer in a foreign client, and what its listener was given."""

    def __init__(self, client: ForeignClient, name: str) -> None:
        self.name = name
        self.client_id = ""
        self.calls: list[list[Received]] = []
        self._client = client

    @property
    def messages(self) -> list[Received]:
        return [message for call in list(self.calls) for message in call]

    @property
    def texts(self) -> list[str]:
        return [message.text for message in self.messages]

    def wait_for(self, texts: Sequence[str], *, seconds: float = DELIVERY_SECONDS) -> list[Received]:
        """Wait until every one of these bodies has come at least once; everything that has come."""
        self.wait_until(lambda got: set(texts) <= {message.text for message in got}, seconds=seconds)
        return self.messages

    def wait_until(
        self, condition: Callable[[list[Received]], bool], *, seconds: float = DELIVERY_SECONDS
    ) -> None:
        try:
            wait_until(
                lambda: condition(self.messages), seconds=seconds, what=f"{self.name} has its messages"
            )
        except AssertionError as late:
            raise AssertionError(f"{late}; it has {len(self.messages)}: {self.texts[:40]}") from None

    def stop(self) -> None:
        self._client.call("stop", name=self.name)


class Sender:
    """A producer in a foreign client."""

    def __init__(self, client: ForeignClient, name: str) -> None:
        self.name = name
        self._client = client

    def send(self, topic: str, *bodies: str | bytes, form: str = "sync", **how: Any) -> list[Sent]:
        """Send one message for each body; what is said in `how` about messages holds for each of them."""
        per_message = {
            key: how.pop(key) for key in ("tags", "keys", "properties", "delayLevel", "flag") if key in how
        }
        messages = [{"body": _bytes(body), **per_message} for body in bodies]
        return self.send_each(topic, messages, form=form, **how)

    def send_each(
        self, topic: str, messages: Sequence[Mapping[str, Any]], form: str = "sync", **how: Any
    ) -> list[Sent]:
        told = self._client.call("send", producer=self.name, topic=topic, messages=messages, form=form, **how)
        return [msgspec.convert(one, Sent) for one in told if one is not None]

    def stop(self) -> None:
        self._client.call("stopProducer", name=self.name)


def _bytes(body: str | bytes) -> bytes:
    return body.encode() if isinstance(body, str) else body


L = TypeVar("L", bound=Listening)


class ForeignClient(ABC):
    """One process with any number of producers and consumers in it."""

    def __init__(self, home: Path, namesrv: str) -> None:
        self.home = home
        self.namesrv = namesrv
        self._process: subprocess.Popen[bytes] | None = None
        self._ids = itertools.count(1)
        self._waiting: dict[int, Future[Any]] = {}
        self._listening: dict[str, Listening] = {}

    @abstractmethod
    def command(self) -> list[str]: ...

    def environment(self) -> dict[str, str]:
        return java_environment(self.home)

    def producer(self, group: str | None = None, **settings: Any) -> Sender:
        sender = Sender(self, fresh("producer"))
        self.call("producer", name=sender.name, group=group or fresh("PG"), **settings)
        return sender

    def push(self, group: str, *topics: str, tags: str = "*", **behaviour: Any) -> Listening:
        """Start a push consumer whose listener behaves as told."""
        listening = self._collect(Listening(self, fresh("consumer")))
        started = self.call("push", name=listening.name, group=group, topics=topics, tags=tags, **behaviour)
        listening.client_id = str(started)
        return listening

    def _collect(self, listening: L) -> L:
        """Keep what is reported under this name."""
        self._listening[listening.name] = listening
        return listening

    def call(self, do: str, *, seconds: float = CALL_SECONDS, **args: Any) -> Any:
        """Do one thing there and wait for its result."""
        return self.begin(do, **args).result(seconds)

    def begin(self, do: str, **args: Any) -> Future[Any]:
        process = self._process
        assert process is not None, "not started"
        assert process.stdin is not None
        number = next(self._ids)
        answer: Future[Any] = Future()
        self._waiting[number] = answer
        process.stdin.write(msgspec.json.encode({"id": number, "do": do, **args}) + b"\n")
        process.stdin.flush()
        return answer

    def start(self) -> Self:
        self.home.mkdir(parents=True, exist_ok=True)
        with (self.home / "stderr.log").open("ab") as errors:
            self._process = subprocess.Popen(
                self.command(),
                env=self.environment(),
                cwd=self.home,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
            )
        _running.add(self._process)
        threading.Thread(target=self._read, args=(self._process,), daemon=True).start()
        return self

    def kill(self) -> None:
        """The process ends at once: its consumers leave without a word."""
        process, self._process = self._process, None
        if process is None:
            return
        process.kill()
        process.wait()
        _running.discard(process)
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                stream.close()

    def _read(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdout is not None
        try:
            for line in process.stdout:
                # Some libraries print to the console; whatever is no object is theirs.
                if line.startswith(b"{"):
                    self._take(msgspec.json.decode(line, type=_Line))
        except ValueError:
            pass  # the stream was closed under us: the client was killed
        for answer in self._waiting.values():
            if not answer.done():
                answer.set_exception(ForeignError(f"the client ended:\n{self._errors()}"))

    def _take(self, line: _Line) -> None:
        if line.consumer is not None:
            messages = msgspec.json.decode(line.messages, type=list[Received])
            self._listening[line.consumer].calls.append(messages)
        elif line.id is not None:
            answer = self._waiting.pop(line.id)
            if line.error is None:
                answer.set_result(line.ok)
            else:
                answer.set_exception(ForeignError(line.error, line.code))

    def _errors(self) -> str:
        return (self.home / "stderr.log").read_text(errors="replace")[-STDERR_TAIL:]

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.kill()


@atexit.register
def _kill_what_is_left() -> None:
    for process in _running:
        process.kill()
