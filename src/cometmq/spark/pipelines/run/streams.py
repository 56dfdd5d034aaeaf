"""Running streaming queries until they end, fail or are interrupted, with progress.

Rules kept here:
- An interrupt stops the query cleanly; the next run repeats its last batch, which counts once.
- A query that fails raises the error of CometMQ that Spark wrapped, as one sentence.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import msgspec

from cometmq.model import errors
from cometmq.model.errors import ClientError, CometError, SettingsError
from cometmq.spark import releases
from cometmq.spark.lag import lag_of

if TYPE_CHECKING:
    from pyspark.sql.streaming.listener import StreamingQueryProgress
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

_POLL_S: Final = 0.5
_STARTS: Final = 10
_NOT_CONNECTED: Final = "Python worker failed to connect back"
"""Spark's error when its Python worker does not start in time, on a busy machine."""
MESSAGES: Final = "messages"
"""The observed metric of a stream whose rows stand for several messages each."""
_OURS: Final = re.compile(r"cometmq\.[\w.]*errors\.(\w+): (.*)")


class Progress(msgspec.Struct, rename="camel"):
    """The progress of a pipeline."""

    rows: int = 0
    batches: int = 0
    rows_per_second: float = 0.0
    waiting: int | None = None
    """The number of messages left, if known."""
    interrupted: bool = False


Report = Callable[[Progress], None]


def no_report(_: Progress) -> None:
    """Discards progress."""


def trigger(writer: DataStreamWriter, *, once: bool, every_s: float) -> DataStreamWriter:
    """Read what is there now, or a batch every `every_s`."""
    if once:
        return writer.trigger(availableNow=True)
    return writer.trigger(processingTime=f"{round(every_s * 1000)} milliseconds")


def run_stream(writer: DataStreamWriter, report: Report = no_report) -> Progress:
    """Run a query until it ends, fails or is interrupted."""
    if not releases.HAS_READ_LIMITS:
        raise SettingsError("this pipeline needs Spark 4.2 or newer, which limits the batches of a stream")
    for _ in range(_STARTS):
        watched = _Watched(writer.start(), report)
        try:
            return watched.run()
        except ClientError as error:
            if _NOT_CONNECTED not in str(error) or watched.progress.batches:
                raise
            failure = error
    raise failure


class _Watched:
    def __init__(self, query: StreamingQuery, report: Report) -> None:
        self._query = query
        self._report = report
        self._began = time.monotonic()
        self._last_batch = -1
        self.progress = Progress()

    def run(self) -> Progress:
        try:
            while self._query.isActive:
                if self._update():
                    self._report(self.progress)
                time.sleep(_POLL_S)
        except KeyboardInterrupt:
            self._query.stop()
            self.progress.interrupted = True
        failure = self._query.exception()
        if failure is not None and not self.progress.interrupted:
            raise reason_of(failure)
        self._update()
        self._report(self.progress)
        return self.progress

    def _update(self) -> bool:
        """Update the progress; whether it changed."""
        before = self.progress.batches, self.progress.waiting
        for each in self._query.recentProgress:
            if each.numInputRows > 0 and each.batchId > self._last_batch:
                self._last_batch = each.batchId
                self.progress.rows += _messages(each)
                self.progress.batches += 1
            self.progress.waiting = _waiting(each.sources)
        self.progress.rows_per_second = round(self.progress.rows / (time.monotonic() - self._began), 1)
        return before != (self.progress.batches, self.progress.waiting)


def _messages(progress: StreamingQueryProgress) -> int:
    observed = progress.observedMetrics.get(MESSAGES)
    return progress.numInputRows if observed is None else int(observed[MESSAGES] or 0)


def _waiting(sources: list[Any]) -> int | None:
    """The number of messages that the sources have and the query has not read."""
    lags = [lag_of(source) for source in sources]
    known = [lag.offsets_behind_latest for lag in lags if lag is not None]
    return sum(known) if len(known) == len(lags) else None


@contextmanager
def plain_errors() -> Iterator[None]:
    """Unwrap errors of CometMQ from those of Spark."""
    try:
        yield
    except CometError:
        raise
    except Exception as error:
        raise reason_of(error) from None


def reason_of(failure: BaseException) -> CometError:
    """The error of CometMQ in an error of Spark, else its first line."""
    text = str(failure)
    found = _OURS.findall(text)
    if not found:
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        return ClientError(lines[0] if lines else type(failure).__name__)
    name, sentence = found[-1]
    kind = getattr(errors, name, ClientError)
    plain = re.sub(r" \(code \d+\)$", "", sentence.strip())
    return kind(plain) if kind is not CometError and issubclass(kind, CometError) else ClientError(plain)
