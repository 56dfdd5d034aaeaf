"""The question to a producer how its transaction ended.

Rules kept here: one producer of the group is asked, each time another one, as long as its connection takes
more. Nobody waits for the answer: it comes as a request of its own, or the question is asked again.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final

from cometmq.broker.groups.online import Clients
from cometmq.broker.settings import Settings
from cometmq.broker.transactions.half_messages import target_of
from cometmq.model.errors import CometError
from cometmq.model.message_properties import PGROUP, UNIQ_KEY
from cometmq.remoting.connection import Connection
from cometmq.wire.codes import RequestCode
from cometmq.wire.header.header import encode_fields
from cometmq.wire.headers.send import CheckTransactionStateRequest
from cometmq.wire.record.ids import encode_offset_id
from cometmq.wire.record.record import Record, encode_record

log = logging.getLogger("cometmq.broker")

MOST_GROUPS: Final = 10_000
"""Of more groups than that it is not remembered who was asked last."""
MOST_UNWRITTEN: Final = 1024 * 1024
"""Who has not read so many bytes yet is asked nothing more."""


class ProducerQuestions:
    """Asks producers; belongs to the event loop."""

    def __init__(self, settings: Settings, clients: Clients) -> None:
        self._settings = settings
        self._clients = clients
        self._asked: dict[str, int] = {}
        """By group: how often somebody was asked."""

    def ask(self, half: Record, properties: Mapping[str, str]) -> bool:
        """Ask about a half message; False if nobody could be asked."""
        group, target = properties.get(PGROUP), target_of(properties)
        connection = None if group is None else self._someone(group)
        if connection is None or target is None:
            log.warning("nobody of %s can be asked about its transaction at %d", group, half.physical_offset)
            return False
        unique_key = properties.get(UNIQ_KEY)
        header = CheckTransactionStateRequest(
            topic=half.topic,
            tran_state_table_offset=half.queue_offset,
            commit_log_offset=half.physical_offset,
            msg_id=unique_key,
            transaction_id=unique_key,
            offset_msg_id=encode_offset_id(half.store_host, half.physical_offset),
            target_broker_name=self._settings.broker.broker_name,
        )
        try:
            body = bytes(encode_record(self._shown(half, *target)))
            connection.oneway(RequestCode.CHECK_TRANSACTION_STATE, encode_fields(header), body)
        except CometError as error:
            log.warning("%s of %s was not asked: %s", connection.remote_address, group, error.message)
            return False
        return True

    def _someone(self, group: str) -> Connection | None:
        members = list(self._clients.producers.get(group, ()))
        if not members:
            return None
        if len(self._asked) >= MOST_GROUPS and group not in self._asked:
            self._asked.clear()
        turn = self._asked[group] = self._asked.get(group, -1) + 1
        for index in range(len(members)):
            connection = members[(turn + index) % len(members)]
            if connection.is_open and connection.unwritten_bytes < MOST_UNWRITTEN:
                return connection
        return None

    def _shown(self, half: Record, topic: str, queue_id: int) -> Record:
        """The half message as its producer knows it."""
        return Record(
            topic,
            half.body,
            half.properties_block,
            body_crc=half.body_crc,
            queue_id=queue_id,
            flag=half.flag,
            queue_offset=half.queue_offset,
            physical_offset=half.physical_offset,
            sys_flag=half.sys_flag,
            born_timestamp_ms=half.born_timestamp_ms,
            born_host=half.born_host,
            store_timestamp_ms=half.store_timestamp_ms,
            store_host=half.store_host,
            reconsume_times=half.reconsume_times,
        )
