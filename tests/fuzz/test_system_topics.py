"""Records in the topics that a broker works through by itself, with values that it should never meet."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from cometmq.wire.codes import RequestCode
from cometmq.wire.frame.command import encode_command
from cometmq.wire.headers.send import SendMessageRequestV2
from tests.fuzz.attack import Attack
from tests.fuzz.crafted_records import CraftedRecords, put_into_store
from tests.fuzz.requests import Request
from tests.fuzz.run import Run, fuzz_run
from tests.fuzz.settings import SEED, share


@pytest.mark.timeout(1800)
async def test_a_broker_passes_over_records_that_it_cannot_process(tmp_path: Path) -> None:
    """What waits behind them is delivered: delayed, timed, transactional and popped messages (B7, B12)."""
    async with fuzz_run(tmp_path / "run") as run:
        await run.stop(run.servers.broker)
        taken = await put_into_store(run.servers.store, CraftedRecords(SEED), max(share(4), 200))
        await run.start_again(run.servers.broker)
        run.report.append(f"{taken} crafted records were in the store")
        run.requests += taken  # a record may be told of once, as a request may
        await run.check_service("behind-crafted-records")
        sends = await _send_to_system_topics(run, max(share(4), 200))
        await run.check_service("behind-crafted-sends")
        run.check_resources(run.servers.broker)
        await run.stop(run.servers.broker, sends)
        await run.start_again(run.servers.broker)
        await run.check_service("after-a-restart")
        await run.stop(run.servers.broker)
        await run.stop(run.servers.namesrv)
        await run.finish()


async def _send_to_system_topics(run: Run, count: int) -> Attack:
    """The same records as sends, which are refused or stored, and harm nobody."""
    crafted = CraftedRecords(SEED + 1)

    def make(number: int) -> Request:
        record = crafted.record(number)
        header = SendMessageRequestV2(
            producer_group="fuzz-shop", topic=record.topic, default_topic="TBW102",
            default_topic_queue_nums=4,
            queue_id=record.queue_id, sys_flag=record.sys_flag, born_timestamp=record.born_timestamp_ms,
            flag=0,
            properties=bytes(record.properties_block).decode("utf-8", "replace"),
            reconsume_times=random.Random(number).choice((None, 0, record.reconsume_times)),
        )  # fmt: skip
        code = RequestCode.SEND_MESSAGE_V2
        return Request(
            number, code, number, encode_command(code, number, 0, header, body=bytes(record.body)), False
        )

    attack = Attack(run.servers.broker.port, make, run.findings)
    await attack.run(10**7, count)
    run.requests += count
    return attack
