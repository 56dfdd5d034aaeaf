"""Administration in asyncio: topics, groups, offsets, messages and servers of a cluster.

The requests are in the module of their family; this class is all of them together.
"""

from __future__ import annotations

from cometmq.client.admin.brokers import BrokerAdmin
from cometmq.client.admin.groups import GroupAdmin
from cometmq.client.admin.messages import FOR_EVER_MS, MessageAdmin
from cometmq.client.admin.topics import TopicAdmin

__all__ = ["FOR_EVER_MS", "Admin"]


class Admin(TopicAdmin, GroupAdmin, MessageAdmin, BrokerAdmin):
    """Looks after a cluster."""
