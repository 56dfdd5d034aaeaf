"""Which topics a cluster has, asked with the options of a source or sink."""

from __future__ import annotations

from collections.abc import Mapping

from cometmq.client.admin.admin import Admin
from cometmq.client.settings import ClientSettings
from cometmq.spark.options import CONNECTION_OPTIONS, Options


def settings_of(options: Mapping[str, str]) -> ClientSettings:
    """How the cluster is reached; what is no option of a connection is passed over."""
    known = {name.lower() for name in CONNECTION_OPTIONS}
    reached = {name: value for name, value in options.items() if name.lower() in known}
    return Options(reached, CONNECTION_OPTIONS, "a connection").client_settings()


async def topic_names(options: Mapping[str, str]) -> list[str]:
    """The names of all topics."""
    async with Admin(settings_of(options)) as admin:
        return await admin.topics()
