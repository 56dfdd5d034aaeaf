"""A program that runs brokers on a small disk in memory, and tells how each run ended.

`mount_and` has a command line that mounts the disk in a namespace of its own, so that nothing is left of it;
`python -m tests.integration.store.full_disk <folder> <scenario>` prints a JSON object a run. A run is a
process, because a broker that touches a page for which there is no room is killed.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from cometmq.aio import Message, Producer
from cometmq.model.errors import CometError
from cometmq.ports.disk import SystemDisk
from cometmq.testing.embedded import EmbeddedBroker

DATA: Final = Path(__file__).parents[2] / "data" / "store"
TOPIC: Final = "orders"
BODY: Final = b"x" * 1000
DISK_IS_NEVER_FULL: Final = {"diskMaxUsedSpaceRatio": "99", "diskSpaceWarningLevelRatio": "100"}
"""So that the store itself has to notice."""
SETTINGS: Final = {
    "mappedFileSizeCommitLog": str(1024 * 1024),
    "mappedFileSizeConsumeQueue": str(200 * 20),
    "maxHashSlotNum": "500",
    "maxIndexNum": "200",
    "mappedFileSizeTimerLog": str(64 * 1024),
}
APACHE: Final = {"mappedFileSizeCommitLog": str(64 * 1024), "mappedFileSizeConsumeQueue": str(64 * 20)}


def mount_and(folder: Path, mebibytes: int, command: list[str]) -> list[str]:
    """A command line that runs another with a small disk in memory at a folder."""
    script = 'mount -t tmpfs -o size="$1"m none "$2" && shift 2 && exec "$@"'
    own = [] if os.geteuid() == 0 else ["-r"]
    return ["unshare", *own, "-m", "sh", "-c", script, "sh", str(mebibytes), str(folder), *command]


def fill(folder: Path, *, leave: int) -> None:
    """Fill a disk up to so many bytes, which a file `filler` takes."""
    usage = SystemDisk().usage(folder)
    assert usage is not None
    with (folder / "filler").open("wb", buffering=0) as file:
        os.posix_fallocate(file.fileno(), 0, max(usage.usable - leave, 1))


def empty(folder: Path) -> None:
    (folder / "filler").unlink()


async def _serve(folder: Path, settings: dict[str, str], messages: int, *, is_killed: bool) -> None:
    """Start a broker, send until it refuses, read everything, stop."""
    async with EmbeddedBroker(folder, settings={**SETTINGS, **DISK_IS_NEVER_FULL, **settings}) as rocketmq:
        sent, refusal = 0, ""
        try:
            async with Producer("g", namesrv=rocketmq.namesrv, retry_times=0) as producer:
                for number in range(messages):
                    await producer.send(Message(TOPIC, BODY, keys=[f"k{number}"]))
                    sent += 1
        except CometError as error:
            refusal = str(error)
        store = rocketmq.broker.context.store
        read = 0
        for queue in list(store.queues):
            offset = queue.min_offset
            while offset < queue.max_offset:
                found = await store.get(queue.topic, queue.queue_id, offset, 32)
                read += len(found.records)
                offset = max(found.next_offset, offset + 1)
        print(json.dumps({"sent": sent, "refusal": refusal, "read": read}), flush=True)
        if is_killed:
            os._exit(9)


def run(
    folder: Path, settings: dict[str, str] | None = None, *, messages: int = 0, is_killed: bool = False
) -> dict[str, Any]:
    """How a run of a broker ended."""
    asked = json.dumps([str(folder), settings or {}, messages, is_killed])
    command = [sys.executable, "-m", "tests.integration.store.full_disk", "serve", asked]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    lines = ended.stdout.strip().splitlines()
    return {"code": ended.returncode, "errors": ended.stderr[-2000:]} | (
        json.loads(lines[-1]) if lines else {}
    )


def starts_on_a_full_disk(folder: Path) -> None:
    """A broker without a store, with one, and with one that was killed; with ever less room."""
    store = folder / "broker"
    for leave in (0, 12288, 24576, 600_000):
        fill(folder, leave=leave)
        _tell(f"new with {leave}", run(folder / f"new-{leave}"))
        subprocess.run(["rm", "-r", folder / f"new-{leave}"], check=False)
        empty(folder)
    _tell("first", run(store, messages=300))
    for leave in (0, 4096, 65536):
        fill(folder, leave=leave)
        _tell(f"old with {leave}", run(store))
        empty(folder)
    _tell("killed", run(store, messages=300, is_killed=True))
    for leave in (0, 4096, 65536):
        fill(folder, leave=leave)
        _tell(f"killed with {leave}", run(store, is_killed=True))
        empty(folder)
    _tell("last", run(store, messages=10))


def starts_on_what_apache_left(folder: Path) -> None:
    """The files of Apache's broker, which have holes."""
    for name in ("store-clean", "store-crashed"):
        for leave in (0, 65536, 262_144):
            root = folder / name
            root.mkdir()
            with tarfile.open(DATA / f"{name}.tar.gz") as packed:
                packed.extractall(root, filter="data")
            _punch_holes(root)
            inner = next(path.parent for path in root.rglob("commitlog"))
            fill(folder, leave=leave)
            _tell(f"{name} with {leave}", run(root, {"storePathRootDir": str(inner), **_sizes(inner)}))
            empty(folder)
            subprocess.run(["rm", "-r", root], check=False)


def _sizes(store: Path) -> dict[str, str]:
    def size_of(pattern: str) -> int:
        return next(path for path in sorted(store.glob(pattern)) if path.is_file()).stat().st_size

    return {
        "mappedFileSizeCommitLog": str(size_of("commitlog/*")),
        "mappedFileSizeConsumeQueue": str(size_of("consumequeue/*/*/*")),
        "mappedFileSizeTimerLog": str(size_of("timerlog/*")),
        "maxHashSlotNum": "500",
        "maxIndexNum": "2000",
    }


def _punch_holes(root: Path) -> None:
    """Let pages of zeros take no room, as in the files that Apache's broker writes."""
    for path in [path for path in root.rglob("*") if path.is_file()]:
        data = path.read_bytes()
        path.unlink()
        with path.open("wb") as file:
            file.truncate(len(data))
            for at in range(0, len(data), 4096):
                page = data[at : at + 4096]
                if page.strip(b"\0"):
                    file.seek(at)
                    file.write(page)


def fills_while_it_runs(folder: Path) -> None:
    """A broker that is sent to until nothing more fits; then it is started again, as it is and with room."""
    fill(folder, leave=4 * 1024 * 1024)
    _tell("until full", run(folder / "broker", messages=10_000))
    _tell("again", run(folder / "broker", messages=10))
    _tell("synchronous", run(folder / "broker", {"flushDiskType": "SYNC_FLUSH"}, messages=10))
    empty(folder)
    _tell("with room", run(folder / "broker", messages=10))


def commands_on_a_full_disk(folder: Path) -> None:
    """What the command line does there; the last of it stops the server again, if it runs."""
    _tell("first", run(folder / "broker", messages=300, is_killed=True))
    _punch_holes(folder / "broker")
    fill(folder, leave=0)
    store = str(folder / "broker" / "store")
    for command, *options in (("inspect",), ("verify",), ("dump", "--topic", TOPIC), ("rebuild", "--yes")):
        _tell(command, command_line("store", command, store, *options))
    server = ("standalone", "--data", str(folder / "new"), "--port", "0", "--namesrv-port", "0")
    _tell("standalone", command_line(*server))


def command_line(*arguments: str) -> dict[str, Any]:
    """How a command ended."""
    command = [sys.executable, "-m", "cometmq.cli.main", *arguments]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    return {"code": ended.returncode, "errors": ended.stderr[-2000:], "lines": len(ended.stdout.splitlines())}


SCENARIOS: Final[dict[str, Callable[[Path], None]]] = {
    each.__name__: each
    for each in (
        starts_on_a_full_disk,
        starts_on_what_apache_left,
        fills_while_it_runs,
        commands_on_a_full_disk,
    )
}


def _tell(what: str, ended: dict[str, Any]) -> None:
    print(json.dumps({"run": what, **ended}), flush=True)


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        folder, settings, messages, is_killed = json.loads(sys.argv[2])
        try:
            asyncio.run(_serve(Path(folder), settings, messages, is_killed=is_killed))
        except CometError as error:
            print(f"{type(error).__name__}: {error}", file=sys.stderr)
            sys.exit(1)
    else:
        with contextlib.suppress(BrokenPipeError):
            SCENARIOS[sys.argv[2]](Path(sys.argv[1]))
