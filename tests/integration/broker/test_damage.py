"""A broker on a damaged store: what it refuses, and what its consumers get of what is left."""

from __future__ import annotations

from pathlib import Path

import pytest

from cometmq.model.errors import StoreError
from cometmq.wire.codes import RequestCode, ResponseCode
from cometmq.wire.headers.pull import PullMessageRequest
from cometmq.wire.record.walk import RecordWalk
from tests.integration.broker.broker_kit import BrokerKit, running_broker
from tests.integration.cli.test_broker_cli import FREE, READY_S, Start, start

__all__ = ["start"]

FILE_SIZE = 65_536
SETTINGS = {
    "mappedFileSizeCommitLog": str(FILE_SIZE),
    "maxMessageSize": "40000",
    "mappedFileSizeConsumeQueue": "20000",
    "maxHashSlotNum": "1000",
    "maxIndexNum": "4000",
}
COUNT = 40


async def consumed(kit: BrokerKit, topic: str = "orders") -> list[int]:
    """The offsets of the messages that a consumer gets that does what the answers tell it."""
    found: list[int] = []
    offset = 0
    for _ in range(100):
        header = PullMessageRequest(
            consumer_group="billing",
            topic=topic,
            queue_id=0,
            queue_offset=offset,
            max_msg_nums=8,
            sys_flag=0b100,
            commit_offset=0,
            suspend_timeout_millis=0,
            subscription="*",
            sub_version=0,
            expression_type="TAG",
        )
        answer = await kit.call(RequestCode.PULL_MESSAGE, header)
        if answer.code == ResponseCode.PULL_NOT_FOUND:
            return found
        moved_to = int(answer.fields["nextBeginOffset"] or 0)
        assert moved_to > offset
        if answer.code == ResponseCode.SUCCESS:
            found += [record.queue_offset for record in RecordWalk(answer.body)]
        offset = moved_to
    raise AssertionError("the consumer does not get to the end")


async def fill(folder: Path) -> None:
    async with running_broker(folder, SETTINGS) as kit:
        for number in range(COUNT):
            answer = await kit.send("orders", body=b"%d " % number + b"x" * 9000)
            assert answer.code == ResponseCode.SUCCESS


async def test_a_missing_file_is_refused_and_consumers_are_moved_over_it(tmp_path: Path) -> None:
    """B5: with the option that says so."""
    await fill(tmp_path)
    (tmp_path / "store" / "commitlog" / f"{FILE_SIZE:020}").unlink()
    with pytest.raises(StoreError, match=r"1 files are missing, from 0+65536 on; .*--recover-what-is-left"):
        async with running_broker(tmp_path, SETTINGS):
            pass
    async with running_broker(tmp_path, {**SETTINGS, "recoverWhatIsLeft": "true"}) as kit:
        assert await consumed(kit) == [*range(7), *range(14, COUNT)]
        assert (await kit.send("orders")).fields["queueOffset"] == str(COUNT)
        assert kit.broker.context.store.skipped.messages == 7
    async with running_broker(tmp_path, SETTINGS) as kit:
        assert await consumed(kit) == [*range(7), *range(14, COUNT + 1)]


@pytest.mark.parametrize("command", ["broker", "standalone"])
async def test_the_option_is_one_of_both_commands(command: str, start: Start, tmp_path: Path) -> None:
    """B1: and the sentence of a refusal is all that is printed."""
    await fill(tmp_path / "broker-0")
    root = tmp_path / "broker-0" / "store"
    (root / "commitlog" / f"{FILE_SIZE:020}").unlink()
    sets = [f"--set={key}={value}" for key, value in SETTINGS.items()]
    ports = [*FREE]
    if command == "standalone":
        for path in list(root.iterdir()):
            path.rename(root.parent / path.name)
        ports += ["--namesrv-port", "0", "--data", str(tmp_path)]
    else:
        sets += [f"--set=storePathRootDir={root}", "--set=brokerIP1=127.0.0.1"]
    refused = start(command, *ports, *sets)
    _, err = refused.process.communicate(timeout=READY_S)
    assert refused.process.returncode == 1
    assert b"--recover-what-is-left" in err
    assert b"Traceback" not in err

    served = start(command, *ports, *sets, "--recover-what-is-left", "--json")
    assert served.ready()
    code, said = served.stop()
    assert code == 0
    assert said.count(" messages from offset ") == 1
