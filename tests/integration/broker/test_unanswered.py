"""The requests that docs/COMPARISON.md says are not answered."""

from __future__ import annotations

import re
from pathlib import Path

from cometmq.wire.codes import ResponseCode
from tests.integration.broker.broker_kit import running_broker

PAGE = Path(__file__).parents[3] / "docs" / "COMPARISON.md"
NEW_IN_5_5 = {5001, *range(200_070, 200_080)}


def listed_codes(page: str) -> set[int]:
    """The codes of the table, and those that newer releases add."""
    section = page.split("### Requests that a CometMQ broker does not answer")[1].split("###")[0]
    texts = re.findall(r"(?m)^\| ([\d–, ]+) \|", section) + re.findall(r"codes ([\d–, and]+)\)", section)
    spans = [span.split("–") for text in texts for span in re.split(", | and ", text)]
    return {code for span in spans for code in range(int(span[0]), int(span[-1]) + 1)}


async def test_requests_that_are_not_supported_are_refused_as_such() -> None:
    """B13: 16 of RocketMQ 5.3, and those of lite topics and of the second timer engine of 5.5."""
    codes = listed_codes(PAGE.read_text())
    assert codes > NEW_IN_5_5
    assert len(codes - NEW_IN_5_5) == 16
    async with running_broker() as kit:
        answered = {code: (await kit.call(code)).code for code in sorted(codes)}
    assert set(answered.values()) == {ResponseCode.REQUEST_CODE_NOT_SUPPORTED}
