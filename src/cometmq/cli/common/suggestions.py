"""What an error of a command adds for people: a name like the wrong one, or where the address came from.

Rules kept here: a suggestion is asked for within a second, and left out if that fails.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from cometmq.cli.common.output import NOT_FOUND, UNREACHABLE, did_you_mean, exit_code
from cometmq.model.errors import CometError

if TYPE_CHECKING:
    from cometmq.cli.common.connect import Link
    from cometmq.client.admin.admin import Admin

_PATIENCE_S: Final = 1.0


def suggestion(error: CometError, given: Mapping[str, Any]) -> str:
    """What to add to an error of a command with these parameters."""
    link: Link | None = given.get("link")
    if link is None:
        return ""
    if exit_code(error) == UNREACHABLE and link.is_default:
        return "; this is the default address, say -n host:9876 for another name server"
    if exit_code(error) != NOT_FOUND:
        return ""
    for kind in ("topic", "group"):
        name = given.get(kind)
        known = names_of(f"{kind}s", link) if isinstance(name, str) else []
        if known and name not in known:
            return did_you_mean(str(name), known)
    return ""


def names_of(kind: str, link: Link) -> list[str]:
    """The names of the `topics` or `groups` of users; none if no server answers soon."""
    from cometmq.cli.common.connect import ask

    async def work(admin: Admin) -> list[str]:
        from cometmq.cli.admin.group_data import group_lines
        from cometmq.cli.admin.topic_data import is_user_topic

        async with asyncio.timeout(_PATIENCE_S):
            if kind == "groups":
                return [each.group for each in await group_lines(admin, None) if not each.system]
            topics, info = await admin.topics(), await admin.cluster_info()
            brokers = {*info.cluster_addr_table, *info.broker_addr_table}
            return [topic for topic in topics if is_user_topic(topic, brokers)]

    try:
        return ask(link._replace(timeout_s=_PATIENCE_S), work)
    except (CometError, TimeoutError):
        return []
