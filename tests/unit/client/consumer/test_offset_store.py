"""Offsets in memory, with brokers, and in a file."""

from __future__ import annotations

import asyncio
import textwrap
from pathlib import Path

import pytest

from cometmq.client.consumer.broker_calls import BrokerCalls
from cometmq.client.consumer.offset_store import BrokerOffsets, LocalOffsets, OffsetStore, encode_offsets
from cometmq.model.errors import ClientError, ConnectError
from cometmq.model.queue import MessageQueue

ONE, TWO = (MessageQueue("orders", "broker-a", number) for number in range(2))


class Calls(BrokerCalls):
    """A broker that remembers what is committed, or cannot be reached."""

    def __init__(self) -> None:
        self.commits: list[tuple[str, MessageQueue, int]] = []
        self.reachable = True

    async def commit(self, group: str, queue: MessageQueue, offset: int) -> None:
        if not self.reachable:
            raise ConnectError("nobody is there")
        self.commits.append((group, queue, offset))


class Overlapping(Calls):
    """Counts the commits that are under way at once."""

    def __init__(self) -> None:
        super().__init__()
        self.most = self._now = 0

    async def commit(self, group: str, queue: MessageQueue, offset: int) -> None:
        self._now += 1
        self.most = max(self.most, self._now)
        await asyncio.sleep(0)
        await super().commit(group, queue, offset)
        self._now -= 1


def test_memory_takes_larger_offsets_or_any_and_nothing_after_a_correction() -> None:
    """C3."""
    offsets = OffsetStore()
    offsets.update(ONE, 5, increase_only=True)
    offsets.update(ONE, 3, increase_only=True)
    assert offsets.known(ONE) == 5
    offsets.update(ONE, 3, increase_only=False)
    assert offsets.known(ONE) == 3
    offsets.freeze(ONE, 100)
    offsets.update(ONE, 200, increase_only=True)
    assert offsets.snapshot() == {ONE: 100}
    assert offsets.snapshot("other") == {}
    offsets.forget(ONE)
    offsets.update(ONE, 1, increase_only=True)
    assert offsets.known(ONE) == 1


async def test_only_what_has_changed_is_committed_and_failures_are_made_good() -> None:
    """C3."""
    calls = Calls()
    offsets = BrokerOffsets("billing", calls)
    offsets.update(ONE, 5, increase_only=True)
    offsets.update(TWO, 7, increase_only=True)
    await offsets.persist([ONE])
    await offsets.persist([ONE])
    assert calls.commits == [("billing", ONE, 5)]
    calls.reachable = False
    await offsets.persist([TWO])
    calls.reachable = True
    await offsets.persist([ONE, TWO])
    assert calls.commits == [("billing", ONE, 5), ("billing", TWO, 7)]


async def test_commits_to_a_broker_never_overlap() -> None:
    """C3, C5: queues are given away together; Apache's broker loses one of two first commits of a group."""
    calls = Overlapping()
    offsets = BrokerOffsets("billing", calls)
    for queue in (ONE, TWO):
        offsets.update(queue, 5, increase_only=True)
    await asyncio.gather(*(offsets.persist(queues) for queues in ([ONE], [TWO], [ONE, TWO])))
    assert calls.commits == [("billing", ONE, 5), ("billing", TWO, 5)]
    assert calls.most == 1


async def test_a_broker_is_told_everything_again_now_and_then() -> None:
    """C3: one that was killed may have lost it."""
    calls = Calls()
    offsets = BrokerOffsets("billing", calls)
    offsets.update(ONE, 5, increase_only=True)
    await offsets.persist([ONE])
    offsets._all_written_s -= 31
    await offsets.persist([ONE])
    assert calls.commits == [("billing", ONE, 5)] * 2


def test_the_file_is_what_java_writes() -> None:
    """C3: the text is the output of `OffsetSerializeWrapper.toJson(true)`, its entries sorted."""
    wanted = """\
        {
        \t"offsetTable":{{
        \t\t\t"brokerName":"broker-a",
        \t\t\t"queueId":0,
        \t\t\t"topic":"orders"
        \t\t}:5,{
        \t\t\t"brokerName":"broker-a",
        \t\t\t"queueId":1,
        \t\t\t"topic":"orders"
        \t\t}:7
        \t}
        }"""
    assert encode_offsets({TWO: 7, ONE: 5}).decode() == textwrap.dedent(wanted)
    assert encode_offsets({}) == b'{\n\t"offsetTable":{}\n}'


async def test_a_file_is_read_again_and_keeps_what_is_not_at_hand(tmp_path: Path) -> None:
    """C3."""
    first = LocalOffsets(tmp_path, "1.2.3.4@DEFAULT", "billing")
    assert await first.read(ONE) is None
    first.update(ONE, 5, increase_only=True)
    first.update(TWO, 7, increase_only=True)
    await first.persist([ONE, TWO])
    second = LocalOffsets(tmp_path, "1.2.3.4@DEFAULT", "billing")
    assert (await second.read(ONE), await second.read(TWO)) == (5, 7)
    second.update(ONE, 6, increase_only=True)
    await second.persist([ONE])
    third = LocalOffsets(tmp_path, "1.2.3.4@DEFAULT", "billing")
    assert (await third.read(ONE), await third.read(TWO)) == (6, 7)
    assert (tmp_path / "1.2.3.4@DEFAULT" / "billing" / "offsets.json.bak").exists()


async def test_a_damaged_file_is_replaced_by_its_back_up_and_that_by_nothing(tmp_path: Path) -> None:
    """C3."""
    file = tmp_path / "c" / "billing" / "offsets.json"
    file.parent.mkdir(parents=True)
    file.write_text('{"offsetTable":{{')
    file.with_name("offsets.json.bak").write_bytes(encode_offsets({ONE: 4}))
    assert await LocalOffsets(tmp_path, "c", "billing").read(ONE) == 4
    file.with_name("offsets.json.bak").write_text("[]")
    assert await LocalOffsets(tmp_path, "c", "billing").read(ONE) is None


async def test_a_file_that_cannot_be_written_is_tried_again(tmp_path: Path) -> None:
    """C3."""
    (tmp_path / "c").write_text("in the way")
    offsets = LocalOffsets(tmp_path, "c", "billing")
    offsets.update(ONE, 5, increase_only=True)
    await offsets.persist([ONE])
    (tmp_path / "c").unlink()
    await offsets.persist([ONE])
    assert await LocalOffsets(tmp_path, "c", "billing").read(ONE) == 5


@pytest.mark.parametrize("client_id", ["../../home", "127.0.0.1@../../x", "..", "", "a\0b", "x" * 300])
@pytest.mark.parametrize("as_group", [False, True])
def test_offsets_are_kept_inside_their_folder_or_not_at_all(
    tmp_path: Path, client_id: str, as_group: bool
) -> None:
    """Instance name, unit name and group are parts of the path."""
    names = ("127.0.0.1@app", client_id) if as_group else (client_id, "billing")
    with pytest.raises(ClientError, match="choose another instance_name, unit_name or group"):
        LocalOffsets(tmp_path / "offsets", *names)
    assert not list(tmp_path.iterdir())


async def test_names_of_peers_in_the_file_of_offsets_come_back_as_they_were(tmp_path: Path) -> None:
    """Topics and broker names are in the text of the file, never in a path."""
    queue = MessageQueue('../topic"},{\n', "../../broker\0\u2028", 0)
    offsets = LocalOffsets(tmp_path, "127.0.0.1@app", "billing")
    offsets.update(queue, 7, increase_only=True)
    await offsets.persist([queue])
    assert await LocalOffsets(tmp_path, "127.0.0.1@app", "billing").read(queue) == 7
