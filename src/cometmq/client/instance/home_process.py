"""The process that a client belongs to.

Rules kept here: a client serves the process that made it, and a child that was forked off is told to make its
own. Asking costs no system call, because every send asks.
"""

from __future__ import annotations

import os
from typing import Final

from cometmq.model.errors import StateError

_FORKED: Final = (
    "this client was made before the process forked and cannot be used in the child; "
    "make a new one in the child"
)


class _Generation:
    """How often processes were forked off on the way to this one."""

    def __init__(self) -> None:
        self.number = 0
        os.register_at_fork(after_in_child=self._next)

    def _next(self) -> None:
        self.number += 1


_now: Final = _Generation()


class HomeProcess:
    """Remembers where it was made."""

    __slots__ = ("_generation",)

    def __init__(self) -> None:
        self._generation = _now.number

    def check(self) -> None:
        """Refuse use by a process that was forked off since."""
        if self._generation != _now.number:
            raise StateError(_FORKED)
