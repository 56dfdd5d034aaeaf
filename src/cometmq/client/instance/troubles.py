"""Troubles of a client: each is logged when it begins, once a minute while it lasts, and when it is over.

What the client only waits for, such as a topic that does not exist yet, is logged without the reminders.
"""

from __future__ import annotations

import logging
import time
from typing import Final

from cometmq.model.errors import CometError, RemotingError
from cometmq.model.queue import MessageQueue

log = logging.getLogger("cometmq.client")

_AGAIN_S: Final = 60.0
_MOST: Final = 1000
"""Further troubles are logged each time."""


class Troubles:
    """The present troubles of a client instance, by what is in trouble."""

    def __init__(self) -> None:
        self._since: dict[str, tuple[float, float, int]] = {}
        """Beginning, last log line, and occurrences since."""

    def __bool__(self) -> bool:
        return bool(self._since)

    def met(self, what: str, text: str, *, remind: bool = True) -> None:
        """Something failed: `what` names the trouble, `text` is the whole sentence."""
        if not remind and what in self._since:
            return
        now = time.monotonic()
        begun, logged, count = self._since.get(what, (now, -_AGAIN_S, 0))
        if now - logged >= _AGAIN_S:
            times = f" ({count + 1} times in {now - begun:.0f} s)" if count else ""
            log.warning("%s%s", text, times)
            logged = now
        if what in self._since or len(self._since) < _MOST:
            self._since[what] = begun, logged, count + 1

    def met_at(self, doing: str, queue: MessageQueue, error: CometError) -> None:
        """A request for a queue failed: its broker cannot be reached, or refuses this queue."""
        where: object = queue.broker_name if isinstance(error, RemotingError) else queue
        self.met(f"{doing} {where}", f"{doing} {where} failed: {error}")

    def over_at(self, doing: str, queue: MessageQueue) -> None:
        """A request for a queue succeeded."""
        for where in (queue.broker_name, queue):
            self.over(f"{doing} {where}", f"{doing} {where} works again")

    def forget(self, what: str) -> None:
        """Nobody waits for it any more."""
        self._since.pop(what, None)

    def over(self, what: str, text: str) -> None:
        """It works again, if it did not."""
        known = self._since.pop(what, None)
        if known is not None:
            begun, _, _ = known
            log.warning("%s, after %.1f s", text, time.monotonic() - begun)
