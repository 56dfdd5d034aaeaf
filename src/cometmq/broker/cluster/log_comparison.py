"""Whether the log of a slave belongs to its master, asked before every connection.

The HA protocol compares lengths only: the log of another cluster, or of a master that has lost its end, would
be continued in the middle of a record. So the last message of the slave has to be the same on the master.
"""

from __future__ import annotations

from dataclasses import dataclass

from cometmq.broker.cluster.table_copies import TIMEOUT_S, TableCopies
from cometmq.model.errors import CometError, ResponseError
from cometmq.remoting.client import RemotingClient
from cometmq.store.message_store import MessageStore
from cometmq.wire.codes import RequestCode
from cometmq.wire.headers.pull import ViewMessageRequest

_WHAT_TO_DO = "empty the slave's store to copy it anew, or let the slave be the master"


@dataclass(eq=False, repr=False)
class LogComparison:
    """Compares the last message of a slave with its master's."""

    _remoting: RemotingClient
    _store: MessageStore
    _tables: TableCopies

    async def difference(self) -> str | None:
        """Why the master's log cannot be followed; None if nothing speaks against it."""
        master, record = self._tables.master, self._last_record()
        if master is None or record is None:
            return None  # nobody to ask, or nothing to ask about
        offset, own = record
        header = ViewMessageRequest(offset=offset)
        try:
            answer = await self._remoting.call_ok(
                master, RequestCode.VIEW_MESSAGE_BY_ID, header, timeout_s=TIMEOUT_S
            )
        except ResponseError:
            return f"the last message of the own log, at {offset}, is not on the master; {_WHAT_TO_DO}"
        except CometError as error:
            return f"the master cannot be asked whether both logs are the same: {error.message}"
        if bytes(answer.body) != own:
            return (
                f"the last message of the own log, at {offset}, is another one on the master; {_WHAT_TO_DO}"
            )
        return None

    def _last_record(self) -> tuple[int, bytes] | None:
        """Offset and bytes of the last message that is in a queue."""
        queue = max(self._store.queues, key=lambda each: each.max_physical_offset, default=None)
        unit = None if queue is None else queue.unit(queue.max_offset - 1)
        view = None if unit is None else self._store.log.record_at(unit[0])
        return None if unit is None or view is None else (unit[0], bytes(view))
