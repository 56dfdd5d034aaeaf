"""The life of a message, made of its records."""

from __future__ import annotations

import msgspec

from cometmq.client.trace.query import ConsumeTrace, gather
from tests.unit.client.trace.test_records import BEGAN, ENDED, RECALL, SENT, TRANSACTION


def test_a_life_has_everything_in_the_order_of_time() -> None:
    again = msgspec.structs.replace(BEGAN, request_id="R2", timestamp_ms=9000, retry_times=3)
    records = [(ENDED, "c"), (again, "c"), (TRANSACTION, "p"), (RECALL, "p"), (BEGAN, "c"), (SENT, "p")]
    life = gather("ID", records)  # type: ignore[arg-type]
    assert life.sent == [msgspec.structs.replace(SENT, client_host="p")]
    assert (life.transactions, life.recalls) == ([TRANSACTION], [RECALL])
    assert life.consumptions == [
        ConsumeTrace(
            group="billing",
            client_host="c",
            request_id="R",
            began_ms=2000,
            retry_times=2,
            cost_ms=5,
            success=False,
            outcome=2,
        ),
        ConsumeTrace(group="billing", client_host="c", request_id="R2", began_ms=9000, retry_times=3),
    ]
    assert not life.is_empty


def test_an_end_without_a_beginning_still_tells_who_and_when() -> None:
    (consumption,) = gather("ID", [(ENDED, "c")]).consumptions
    assert (consumption.group, consumption.client_host, consumption.began_ms) == ("billing", "c", 2000)


def test_nothing_found_is_an_empty_life() -> None:
    assert gather("ID", []).is_empty
