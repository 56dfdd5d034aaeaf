"""Times on the command line: absolute, or relative to now.

Rules kept here: a time without a time zone is in UTC, like all times in the output.
"""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime
from typing import Final

from cometmq.cli.common.output import UsageError

_AGO: Final = re.compile(r"(\d+)\s*(ms|s|m|h|d)(?:\s+ago)?")
_UNIT_MS: Final = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_MILLISECONDS: Final = re.compile(r"\d{11,14}")


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def parse_time(text: str) -> int:
    """Milliseconds since 1970 of `now`, `90s`, `10m`, `2h ago`, `2025-01-31 12:00`, or that number itself."""
    text = text.strip()
    if text == "now":
        return now_ms()
    ago = _AGO.fullmatch(text)
    if ago is not None:
        return now_ms() - int(ago.group(1)) * _UNIT_MS[ago.group(2)]
    if _MILLISECONDS.fullmatch(text):
        return int(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise UsageError(
            f"{text!r} is no time; write 2025-01-31T12:00:00, 10m (so long ago), now, "
            "or milliseconds since 1970"
        ) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return int(moment.timestamp() * 1000)
