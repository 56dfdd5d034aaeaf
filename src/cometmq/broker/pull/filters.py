"""Which messages a pull is to get, decided on the broker.

Rules kept here:
- Tags are compared by their hash, which is what a queue unit has; the client compares the texts once more.
- An SQL92 expression is asked about the properties of each message; what cannot be read is not wanted.
- A filter is made once a subscription and has no state: whoever pulls with that subscription shares it.
- What a group gets once more is not filtered again, unless the settings ask for it (`filterSupportRetry`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Protocol

from cometmq.broker.groups.subscriptions import is_everything, tags_of
from cometmq.model.errors import ProtocolError
from cometmq.model.message_properties import RETRY_TOPIC
from cometmq.store.queue.extension import ExtUnit
from cometmq.wire.bodies.heartbeat import SubscriptionData
from cometmq.wire.java_hash import tags_code
from cometmq.wire.record.codec import decode_record
from cometmq.wire.record.properties import decode_properties
from cometmq.wire.sql92.expression import Expression


class PullFilter(Protocol):
    """A `MessageFilter` of the store that can also be asked about a message that has just come."""

    @property
    def is_expensive(self) -> bool:
        """Whether asking takes longer than a look into a table."""

    def wants_unit(self, tags_code: int, ext: ExtUnit | None) -> bool:
        """Whether a message may be wanted, by what its queue unit says."""

    def wants_record(self, record: memoryview) -> bool:
        """Whether it is, by what the record says."""

    def wants_arrival(self, tags_code: int, properties_block: bytes | memoryview) -> bool:
        """Both at once."""


class TagFilter:
    """Wants messages with one of several tags."""

    __slots__ = ("_codes",)
    is_expensive = False

    def __init__(self, codes: Collection[int]) -> None:
        self._codes = frozenset(codes)

    def wants_unit(self, tags_code: int, ext: ExtUnit | None) -> bool:
        return tags_code in self._codes

    def wants_record(self, record: memoryview) -> bool:
        return True

    def wants_arrival(self, tags_code: int, properties_block: bytes | memoryview) -> bool:
        return tags_code in self._codes


class SqlFilter:
    """Wants messages whose properties match an expression."""

    __slots__ = ("_matches",)
    is_expensive = True

    def __init__(self, matches: Callable[[Mapping[str, str]], bool]) -> None:
        self._matches = matches

    def wants_unit(self, tags_code: int, ext: ExtUnit | None) -> bool:
        return True

    def wants_record(self, record: memoryview) -> bool:
        try:
            block = decode_record(record).properties_block
        except ProtocolError:
            return False
        return self._matches(decode_properties(block))

    def wants_arrival(self, tags_code: int, properties_block: bytes | memoryview) -> bool:
        return self._matches(decode_properties(properties_block))


def retry_filter(expression_of: Callable[[str], Expression | None]) -> SqlFilter:
    """Asks of a message that comes once more what its group asks of the topic that it came from."""

    def matches(properties: Mapping[str, str]) -> bool:
        expression = expression_of(properties.get(RETRY_TOPIC, ""))
        return expression is None or expression.matches(properties)

    return SqlFilter(matches)


def tag_filter(subscription: SubscriptionData) -> TagFilter | None:
    """The filter of a subscription to tags; None if it takes every message."""
    if subscription.class_filter_mode or is_everything(subscription.sub_string):
        return None
    # A client may leave the hashes to the broker.
    return TagFilter(subscription.code_set or tuple(map(tags_code, tags_of(subscription.sub_string))))
