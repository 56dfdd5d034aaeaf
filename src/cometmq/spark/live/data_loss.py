"""Reports of messages that were deleted before the query read them: an error, or a warning and a gap."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from cometmq.model.errors import CometError
from cometmq.model.queue import MessageQueue

log = logging.getLogger("cometmq.spark")


class DataLossError(CometError):
    """Messages of a query no longer exist."""


def report_loss(
    queue: MessageQueue, first: int, end: int, has: tuple[int, int], *, fail_on_data_loss: bool
) -> int:
    """Report that the offsets from `first` to before `end` are lost. Returns their number."""
    count = end - first
    sentence = (
        f"{queue} has lost {count} messages that were not read yet, offsets {first} to {end - 1}; "
        f"it has {has[0]} to {has[1] - 1} now"
    )
    if fail_on_data_loss:
        raise DataLossError(
            f"{sentence}. They expired, or the topic was made anew: keep messages for longer than the query "
            "may be behind, or set failOnDataLoss=false to go on without them"
        )
    log.warning("%s; going on without them", sentence)
    return count


def report_other_topics(topics: Sequence[str], read: str, *, fail_on_data_loss: bool) -> None:
    """Report a checkpoint with offsets of topics that the query does not read."""
    sentence = f"the checkpoint has offsets of {', '.join(topics[:10])}, and the query reads {read}"
    if fail_on_data_loss:
        raise DataLossError(
            f"{sentence}. Start a query of other topics with a new checkpointLocation, or set "
            "failOnDataLoss=false to leave these topics out"
        )
    log.warning("%s; going on without them", sentence)


def report_shrunk(
    queue: MessageQueue, read_to: int, has: tuple[int, int], *, fail_on_data_loss: bool
) -> None:
    """Report a queue that ends before the offset that was read."""
    sentence = (
        f"{queue} was read up to offset {read_to} and ends at {has[1]} now: its topic was made anew, or its "
        "broker lost the end of its log"
    )
    if fail_on_data_loss:
        raise DataLossError(
            f"{sentence}. Start the query with a new checkpoint, or set failOnDataLoss=false to go on with "
            f"the first message of the queue, at {has[0]}"
        )
    log.warning("%s; going on with its first message, at %d", sentence, has[0])
