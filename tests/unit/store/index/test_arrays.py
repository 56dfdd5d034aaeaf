"""Keys of many messages at once, which are indexed as they are one by one."""

from __future__ import annotations

import random
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cometmq.store.dispatch_rules import Keyed
from cometmq.store.index import index as index_module
from cometmq.store.index.arrays import AT_ONCE, LARGE_GROUP, key_hashes_of
from cometmq.store.index.file import IndexFile
from cometmq.store.index.key_hash import key_hash
from cometmq.testing.simulation.disk import SimulatedDisk
from tests.unit.store.index.index_kit import START_MS, an_index, files, found


@given(
    st.integers(-(2**31), 2**31 - 1),
    st.lists(st.text("0123456789ABCDEF", min_size=12, max_size=12), min_size=1, max_size=5)
    | st.lists(st.characters(max_codepoint=127), min_size=1, max_size=40),
    st.sampled_from(["", "order-", "0A0000010000", "x" * 70]),
)
def test_hashes_are_those_of_each_key(beginning: int, keys: list[str], start: str) -> None:
    """B10: also where Java has no positive number."""
    encoded = [f"{start}{key}".encode() for key in keys]
    hashes = key_hashes_of(beginning, encoded)
    assert hashes is not None
    assert hashes.tolist() == [key_hash(beginning, key) for key in encoded]


def test_keys_that_java_counts_otherwise_are_left_to_others() -> None:
    """B10: those of several lengths, and those that are more than ASCII."""
    assert key_hashes_of(1, [b"a", b"bc"]) is None
    assert key_hashes_of(1, ["é".encode(), b"ab"]) is None


KINDS = (
    "unique keys",
    "unique keys and keys",
    "keys",
    "several keys",
    "two topics",
    "all kinds",
    "backward times",
)


def records(kind: str, count: int) -> list[Keyed]:
    """Messages with keys of a kind."""
    chosen = random.Random(kind)
    found: list[Keyed] = []
    for number in range(count):
        unique_key: bytes | None = b"%032X" % chosen.randrange(count // 2)
        keys: bytes | None = None
        topic, time_ms = "orders", START_MS + number * 7
        if kind in ("unique keys and keys", "all kinds"):
            keys = b"key-%04d" % chosen.randrange(9999)
        if kind == "keys" or (kind == "all kinds" and number % 3):
            unique_key, keys = None, b"order-%d" % number
        if kind == "several keys":
            keys = b"a-%d b-%d" % (number, number)
        if kind == "two topics" and number % 2:
            topic = "bills"
        if kind == "backward times":
            time_ms = START_MS + chosen.randrange(100_000)
        found.append((topic, unique_key, keys, number * 300, time_ms))
    return found


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("entries", [100_000, 3_000], ids=["one file", "several files"])
def test_many_keys_leave_the_same_files_as_few(
    monkeypatch: pytest.MonkeyPatch, kind: str, entries: int
) -> None:
    """B10: whatever collides in a slot, and wherever a file ends."""
    disks = SimulatedDisk(), SimulatedDisk()
    written: list[int] = []
    put_columns = IndexFile.put_columns

    def noticed(self: IndexFile, columns: object) -> None:
        put_columns(self, columns)  # type: ignore[arg-type]
        written.append(self.count)

    monkeypatch.setattr(IndexFile, "put_columns", noticed)
    contents = []
    for disk, has_numpy in zip(disks, (True, False), strict=True):
        monkeypatch.setattr(index_module, "arrays_are_loaded", lambda has_numpy=has_numpy: has_numpy)
        index = an_index(disk, entries=entries)
        all_of_them = records(kind, 3 * AT_ONCE)
        for first in range(0, len(all_of_them), 700):
            index.put_all(all_of_them[first : first + 700])
        contents.append(files(disk, index))
        topic, unique_key, keys, place, _ = all_of_them[-1]
        assert place in found(index, (unique_key or keys or b"").decode(), topic=topic)
        index.close()
    assert contents[0] == contents[1]
    alike = kind in ("unique keys", "unique keys and keys", "backward times")
    assert bool(written) == alike


def test_loading_is_left_to_those_who_have_the_time() -> None:
    """B10: a broker starts without NumPy, and has it when it is asked for it."""
    program = (
        "import sys; import cometmq.store.message_store; import cometmq.broker.handlers; "
        "from cometmq.store.index.arrays import arrays_are_loaded, has_arrays, load_arrays; "
        "print(arrays_are_loaded(), has_arrays(), 'numpy' in sys.modules, load_arrays(), arrays_are_loaded())"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert result.stdout.split() == ["False", "True", "False", "True", "True"]


def test_few_keys_do_without(monkeypatch: pytest.MonkeyPatch) -> None:
    """B10: NumPy is not loaded for them."""
    monkeypatch.setattr(IndexFile, "put_columns", None)
    index = an_index(SimulatedDisk(), entries=10_000)
    for number in range(3):
        some = records("unique keys", LARGE_GROUP * 3)[number * 200 : number * 200 + 200]
        index.put_all(some)
    index.write()
    assert index.end_offset == 599 * 300
