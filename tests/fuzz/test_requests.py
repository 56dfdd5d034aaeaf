"""Every request code with its fields at their limits, against the processes that people run (N9)."""

from __future__ import annotations

from pathlib import Path

import pytest

from cometmq.wire.codes import RequestCode
from tests.fuzz.requests import BROKER_CODES, CLIENT_CODES, NAMESRV_CODES
from tests.fuzz.run import fuzz_run
from tests.fuzz.settings import share

SETTLED_S = 5.0


@pytest.mark.timeout(3600)
async def test_servers_answer_every_request_and_go_on_whatever_its_fields_are(tmp_path: Path) -> None:
    """Never silence, never a trace, never a file elsewhere; and good clients are served as before."""
    async with fuzz_run(tmp_path / "run") as run:
        namesrv = await run.attack_namesrv(0, share(15))
        broker = await run.attack_broker(10**6, share(40))
        for attack in (namesrv, broker):
            await attack.wait_for_the_rest(SETTLED_S)
        await run.check_service("requests")
        for server in run.servers.both:
            run.check_resources(server)
        await run.stop(run.servers.broker, broker)
        await run.stop(run.servers.namesrv, namesrv)
        run.report += [broker.summary(), namesrv.summary()]
        await run.finish()


def test_every_handled_code_is_among_the_requests() -> None:
    """What is handled is fuzzed, without anybody having to think of it."""
    assert len(BROKER_CODES) > 80
    assert {RequestCode.REGISTER_BROKER, RequestCode.PUT_KV_CONFIG} <= {code.number for code in NAMESRV_CODES}
    assert RequestCode.CHECK_TRANSACTION_STATE in {code.number for code in CLIENT_CODES}
