"""The base of producers and consumers: lifecycle, group, and the client instance that they join.

Rules kept here:
- A client is made, started once and stopped once. Used at another time, or by a forked process, it raises.
- Brokers know the group by its name with the namespace.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar, Final, Self

from cometmq.client.instance.instance import ClientInstance, ForkGuard
from cometmq.client.instance.members import MemberKind
from cometmq.client.names import check_group, wrap_group
from cometmq.client.settings import ClientSettings, ServiceState, namespace_of
from cometmq.model.errors import SettingsError, StateError
from cometmq.remoting.name_server_addresses import parse_addresses

_RUNNING: Final = ServiceState.RUNNING  # every send looks at it, and an attribute of an enum costs more


class AsyncClient(ABC):
    """A client that `async with` starts and stops."""

    @abstractmethod
    async def start(self) -> None:
        """Start the client."""

    @abstractmethod
    async def stop(self) -> None:
        """Stop the client in good order; a second call does nothing."""

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()


class GroupClient(AsyncClient):
    """A producer or a consumer."""

    kind: ClassVar[MemberKind]

    def __init__(self, group: str, settings: ClientSettings) -> None:
        check_group(group)
        self.state = ServiceState.CREATED
        self._namespace = namespace_of(settings)
        self._group = wrap_group(self._namespace, group)
        self._fork_guard = ForkGuard()
        self._instance: ClientInstance | None = None

    @property
    def group(self) -> str:
        """The name of the group as brokers know it."""
        return self._group

    @property
    def client_id(self) -> str:
        """The id of the running client."""
        return self._running_instance().client_id

    @property
    def name_servers(self) -> tuple[str, ...]:
        """The addresses of the name servers in use."""
        return self._running_instance().name_servers.addresses

    def update_name_servers(self, namesrv: str | Sequence[str]) -> None:
        """Use these name servers from now on; so do other clients with this client id."""
        addresses = parse_addresses(namesrv)
        if not addresses:
            raise SettingsError("no name server is given; pass 'host:9876', or a list of them")
        self._running_instance().name_servers.use(addresses)

    def _begin_start(self) -> None:
        self._fork_guard.check()
        if self.state is not ServiceState.CREATED:
            raise StateError(f"the {self.kind} is {self.state.value}; make a new one")
        self.state = ServiceState.START_FAILED

    def _running_instance(self) -> ClientInstance:
        self._fork_guard.check()
        if self.state is not _RUNNING or self._instance is None:
            raise StateError(f"the {self.kind} is {self.state.value}; use it between start and stop")
        return self._instance
