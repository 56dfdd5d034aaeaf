"""Runs the event loop: uvloop where it is available, plain asyncio elsewhere."""

from __future__ import annotations

import asyncio
import errno
import logging
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from cometmq.ports.rarely import Rarely

log = logging.getLogger("cometmq.remoting")

T = TypeVar("T")

_no_descriptor = Rarely()


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop]:
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop
    return uvloop.new_event_loop


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run a program to its end."""
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.get_loop().set_exception_handler(_handle)
        return runner.run(main)


def _handle(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Log errors of the loop; asyncio reports a missing descriptor a thousand times, the log now and then."""
    error = context.get("exception")
    if isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE):
        if count := _no_descriptor.count():
            log.error("%s (%d times): %s; raise the limit (ulimit -n)", context["message"], count, error)
        return
    loop.default_exception_handler(context)
