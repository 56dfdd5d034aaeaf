"""`cometmq store` as a process: what it prints, its exit codes, and what it does to a store in use."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from cometmq.ports.disk import SystemDisk
from tests.unit.store.small_store import a_closed_store
from tests.unit.store.store_vectors import unpack_clean_store

LEAN = ("rich", "cryptography", "cometmq.store", "cometmq.ports.disk", "zstandard")


@pytest.fixture
def apache(tmp_path: Path) -> Path:
    return unpack_clean_store(tmp_path, "")


@pytest.fixture
def held(apache: Path) -> Iterator[Path]:
    """The store while another process uses it."""
    program = (
        "import sys; from pathlib import Path; from cometmq.ports.disk import SystemDisk\n"
        "lock = SystemDisk().lock(Path(sys.argv[1])); print(lock is not None, flush=True); sys.stdin.read()"
    )
    holder = subprocess.Popen(
        [sys.executable, "-c", program, str(apache / "lock")], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == b"True\n"
    yield apache
    holder.communicate()


def store(*arguments: object, answer: str = "") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "cometmq.cli.main", "store", *map(str, arguments)]
    return subprocess.run(command, input=answer, capture_output=True, text=True, timeout=60, check=False)


def content_of(root: Path) -> dict[Path, bytes]:
    return {path.relative_to(root): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def test_inspect_shows_log_queues_and_index(apache: Path) -> None:
    """B4"""
    before = content_of(apache)
    text = store("inspect", apache)
    document = json.loads(store("inspect", apache, "--json").stdout)

    assert text.returncode == 0
    assert "log: 1 file of 1048576 bytes, 0 to 50281" in text.stdout
    assert "VecNormal" in text.stdout
    assert document["log"]["maxOffset"] == 50281
    assert len(document["queues"]) == 53
    assert document["inUse"] is False
    assert content_of(apache) == before


def test_verify_ends_with_0_on_a_right_store_and_1_on_a_wrong_one(apache: Path) -> None:
    """B5"""
    before = content_of(apache)
    right = store("verify", apache)
    assert (right.returncode, right.stderr) == (0, "")
    assert right.stdout == "0 findings in 153 messages, 53 queues and 228 index entries\n"
    assert content_of(apache) == before

    queue = apache / "consumequeue" / "VecNormal" / "0" / f"{0:020}"
    with queue.open("r+b") as file:
        file.seek(11)
        file.write(b"\xee")
    wrong = store("verify", apache)
    document = json.loads(store("verify", apache, "--json").stdout)
    assert wrong.returncode == 1
    assert f"{queue} at 0: expected a unit of " in wrong.stdout
    assert document["totalFindings"] == len(document["findings"]) == 1
    assert document["findings"][0]["file"] == str(queue)


def test_dump_prints_a_line_of_json_for_each_message(apache: Path) -> None:
    """B4"""
    ended = store("dump", apache, "--topic", "VecNormal", "--queue", 0, "--from", 1, "--limit", 2)
    messages = [json.loads(line) for line in ended.stdout.splitlines()]

    assert ended.returncode == 0
    assert [(each["queueId"], each["queueOffset"]) for each in messages] == [(0, 1), (0, 2)]


def test_dump_ends_quietly_when_nobody_reads_on(tmp_path: Path) -> None:
    a_closed_store(tmp_path / "store", 3000)
    command = [sys.executable, "-m", "cometmq.cli.main", "store", "dump", str(tmp_path / "store")]
    with subprocess.Popen(
        [*command, "--topic", "orders"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as dump:
        assert dump.stdout is not None
        assert dump.stderr is not None
        assert json.loads(dump.stdout.readline())["queueOffset"] == 0
        dump.stdout.close()
        assert dump.stderr.read() == ""
        assert dump.wait(timeout=30) == 0


def test_rebuild_asks_first_and_leaves_all_as_it_is_without_a_yes(apache: Path) -> None:
    before = content_of(apache)
    ended = store("rebuild", apache, answer="y\n")  # nobody who could be asked

    assert ended.returncode == 2
    assert "say --yes" in ended.stderr
    assert "Replace the queues and the index" in ended.stderr
    assert content_of(apache) == before


def test_rebuild_brings_lost_queues_back(apache: Path, tmp_path: Path) -> None:
    """B5: with the broker's file, which says what no queue is left to say."""
    queues = content_of(apache / "consumequeue")
    shutil.rmtree(apache / "consumequeue")
    conf = tmp_path / "broker.conf"
    conf.write_text(
        "brokerName=broker-a\nmappedFileSizeConsumeQueue=60000\n"
        "messageDelayLevel=1s 2s 3s 4s 5s 6s 7s 8s 9s 10s 20m 30m 1h 2h\n"
    )
    ended = store("rebuild", apache, "-c", conf, "--yes", "--json")

    assert ended.returncode == 0, ended.stderr
    assert json.loads(ended.stdout)["queues"] == 53
    assert content_of(apache / "consumequeue") == queues
    assert store("verify", apache, "-c", conf).returncode == 0


def test_a_store_in_use_is_read_but_neither_verified_nor_rebuilt(held: Path) -> None:
    """B5"""
    before = content_of(held)
    assert "in use" in store("inspect", held).stdout
    dumped = store("dump", held, "--topic", "VecNormal")
    assert dumped.returncode == 0
    assert dumped.stdout
    assert "is in use" in dumped.stderr
    for arguments in (("verify", held), ("rebuild", held, "--yes")):
        refused = store(*arguments)
        assert (refused.returncode, refused.stdout) == (1, "")
        assert refused.stderr.startswith("error: ")
        assert refused.stderr.count("\n") == 1
    assert content_of(held) == before


def test_errors_are_one_line(tmp_path: Path) -> None:
    empty_conf = tmp_path / "other.conf"
    empty_conf.write_text("listenPort=1\n")
    for arguments in (
        ("inspect", tmp_path),
        ("verify", tmp_path / "missing"),
        ("dump", tmp_path, "--topic", "x"),
        ("rebuild", tmp_path, "--yes"),
        ("inspect", tmp_path, "-c", empty_conf),
        ("inspect", tmp_path, "-c", tmp_path / "missing.conf"),
    ):
        ended = store(*arguments)
        assert (ended.returncode, ended.stdout) == (1, ""), arguments
        assert ended.stderr.startswith("error: ")
        assert ended.stderr.count("\n") == 1
    assert SystemDisk().entries(tmp_path)[0].name == "other.conf"
    assert len(SystemDisk().entries(tmp_path)) == 1


@pytest.mark.parametrize("command", ["inspect", "verify", "dump", "rebuild"])
def test_every_command_has_examples(command: str) -> None:
    assert f"cometmq store {command} ~/store" in store(command, "--help").stdout


def test_what_the_commands_need_is_imported_when_they_run() -> None:
    program = f"import sys, cometmq.cli.store\nprint([name for name in {LEAN!r} if name in sys.modules])\n"
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ended.stdout == "[]\n"
