"""SIGINT and SIGTERM: the first one begins an orderly stop, each further one says how that is going.

Rule kept here: no signal tears a stop apart, however often somebody presses Ctrl-C. Who has waited long
enough sends SIGKILL.
"""

from __future__ import annotations

import asyncio
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Final

STOP_SIGNALS: Final = (
    signal.SIGINT,
    signal.SIGTERM,
    *([signal.SIGBREAK] if hasattr(signal, "SIGBREAK") else []),  # Ctrl-Break, on Windows
)


def _receive(act: Callable[[], object], numbers: Iterable[signal.Signals]) -> Callable[[], None]:
    """Have signals call a function on the running loop; returns what ends that."""
    loop = asyncio.get_running_loop()
    received = set(numbers)
    try:
        for number in received:
            loop.add_signal_handler(number, act)
    except NotImplementedError:  # Windows
        return _replace(lambda *_: loop.call_soon_threadsafe(act), received)

    def remove() -> None:
        for number in received:
            loop.remove_signal_handler(number)

    return remove


def _replace(handler: Callable[..., object], numbers: Iterable[signal.Signals]) -> Callable[[], None]:
    """Set the handlers of the process; returns what restores them."""
    previous = {number: signal.signal(number, handler) for number in numbers}

    def restore() -> None:
        for number, before in previous.items():
            signal.signal(number, before)

    return restore


@contextmanager
def on_signals(act: Callable[[], object], *numbers: signal.Signals) -> Iterator[None]:
    """Within the block, signals call a function on the running loop."""
    end = _receive(act, numbers)
    try:
        yield
    finally:
        end()


class StopSignals:
    """What the stop signals of one program do."""

    def __init__(self, begin: Callable[[], object], again: Callable[[float], object]) -> None:
        self._begin = begin
        self._again = again
        """Called with the seconds since the first signal."""
        self._since_s: float | None = None

    def received(self, *_: object) -> None:
        """A signal came."""
        if self._since_s is None:
            self._since_s = time.monotonic()
            self._begin()
        else:
            self._again(time.monotonic() - self._since_s)

    def receive_on_loop(self) -> None:
        """Receive signals on the running event loop as long as it exists."""
        _receive(self.received, STOP_SIGNALS)

    @contextmanager
    def on_loop(self) -> Iterator[None]:
        """Receive signals on the running event loop for a while."""
        with on_signals(self.received, *STOP_SIGNALS):
            yield

    @contextmanager
    def on_main_thread(self) -> Iterator[None]:
        """Receive signals on the main thread; on another thread, which gets none, do nothing."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        restore = _replace(self.received, STOP_SIGNALS)
        try:
            yield
        finally:
            restore()
