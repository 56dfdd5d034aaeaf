"""Messages that are gone before they were read: an error, or a gap that is told of.

Rules kept here: the sentence names the queue and the offsets, says what the queue still has, and what to do.
"""

from __future__ import annotations

import logging

from cometmq.model.errors import CometError
from cometmq.model.queue import MessageQueue

log = logging.getLogger("cometmq.spark")


class DataLossError(CometError):
    """Messages that a query was to read no longer exist."""


def report_loss(
    queue: MessageQueue, first: int, behind: int, has: tuple[int, int], *, fail_on_data_loss: bool
) -> int:
    """Tell of messages from `first` on, before `behind`, that are gone; the answer is how many."""
    count = behind - first
    sentence = (
        f"{queue} has lost {count} messages that were not read yet, offsets {first} to {behind - 1}; "
        f"it has {has[0]} to {has[1] - 1} now"
    )
    if fail_on_data_loss:
        raise DataLossError(
            f"{sentence}. They expired, or the topic was made anew: keep messages for longer than the query "
            "may be behind, or set failOnDataLoss=false to go on without them"
        )
    log.warning("%s; going on without them", sentence)
    return count


def report_shrunk(
    queue: MessageQueue, read_to: int, has: tuple[int, int], *, fail_on_data_loss: bool
) -> None:
    """Tell of a queue that has less than was read of it already."""
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
