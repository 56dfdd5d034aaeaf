"""A small cluster with Apache's broker.

Rules kept here:
- A cluster is up when its name server has the routes of its broker, not before.
- What can happen at the same time does: starting a JVM is the slowest part of these tests.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeVar

from tests.compat.apache import AdminShell, ApacheBroker, Server

T = TypeVar("T")


class MakeNamesrv(Protocol):
    """Builds a name server, not yet started."""

    def __call__(
        self,
        home: Path,
        settings: Mapping[str, str] = ...,
        port: int | None = ...,
        *,
        env: Mapping[str, str] = ...,
    ) -> Server: ...


@dataclass(frozen=True)
class Cluster:
    """A name server, one Apache broker that registers with it, and a shell to administer them."""

    namesrv: Server
    broker: ApacheBroker
    shell: AdminShell

    def mqadmin(self, *args: str) -> str:
        return self.shell.run(*args, namesrv=self.namesrv.address)


@contextmanager
def running_cluster(home: Path, make_namesrv: MakeNamesrv) -> Iterator[Cluster]:
    with (
        make_namesrv(home / "namesrv") as namesrv,
        ApacheBroker(home / "broker", namesrv.address) as broker,
        AdminShell(home / "shell") as shell,
    ):
        broker.wait_registered(namesrv.address)
        yield Cluster(namesrv, broker, shell)


def side_by_side(*calls: Callable[[], T]) -> list[T]:
    """The results of calls that are made at the same time."""
    with ThreadPoolExecutor(len(calls)) as pool:
        return [future.result() for future in [pool.submit(call) for call in calls]]
