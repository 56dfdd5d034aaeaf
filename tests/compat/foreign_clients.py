"""The foreign clients, one class each: how its program is started.

Rules kept here:
- The clients are where `make compat` puts them; nothing is fetched from here.
- The Java program is the same for both releases, compiled against the jars of each.
"""

from __future__ import annotations

import functools
import os
import sys
from pathlib import Path

from tests.compat.foreign import ForeignClient
from tests.compat.jvm import (
    OPEN_MODULES,
    PEERS,
    QUICK_START,
    SOURCES,
    JavaError,
    compiled,
    java_command,
)

PROGRAMS = Path(__file__).parent / "peers"


class JavaClient(ForeignClient):
    """Apache's Java client, of the release that the servers are of."""

    def __init__(self, home: Path, namesrv: str, *, binary: bool = False) -> None:
        super().__init__(home, namesrv)
        # A client looks at its share every 20 seconds; the tests have not that long.
        self.props = {"rocketmq.client.rebalance.waitInterval": "3000"}
        if binary:
            self.props["rocketmq.serialize.type"] = "ROCKETMQ"

    def command(self) -> list[str]:
        return java_command("ClientDriver", self.namesrv, home=self.home, props=self.props)


class OldJavaClient(JavaClient):
    """Apache's Java client 4.9.8."""

    lib = PEERS / "java-4.9.8" / "lib"

    def command(self) -> list[str]:
        class_path = os.pathsep.join((str(_compiled_for(self.lib)), f"{self.lib}/*"))
        system = {"user.home": str(self.home), "rocketmq.client.logRoot": str(self.home), **self.props}
        properties = (f"-D{key}={value}" for key, value in system.items())
        return [
            "java",
            *QUICK_START,
            *OPEN_MODULES,
            *properties,
            "-cp",
            class_path,
            "ClientDriver",
            self.namesrv,
        ]


@functools.cache
def _compiled_for(lib: Path) -> Path:
    """The folder with the classes of the driver, compiled against the jars of another release."""
    if not lib.is_dir():
        raise JavaError("the jars of the older client are missing: `make compat` fetches them")
    return compiled([SOURCES / "ClientDriver.java", *sorted(SOURCES.glob("Driver*.java"))], lib)


class GoClient(ForeignClient):
    """The Go client, in the program that `make compat` builds from `peers/go`."""

    def command(self) -> list[str]:
        return [str(PEERS / "go" / "driver"), self.namesrv]


class NodeClient(ForeignClient):
    """The Node client."""

    def command(self) -> list[str]:
        return ["node", str(PROGRAMS / "node" / "driver.js"), self.namesrv]

    def environment(self) -> dict[str, str]:
        return {**super().environment(), "NODE_PATH": str(PEERS / "node" / "node_modules")}


class CppClient(ForeignClient):
    """The C++ client, through its binding for Python."""

    def command(self) -> list[str]:
        return [sys.executable, str(PROGRAMS / "cpp" / "driver.py"), self.namesrv]

    def environment(self) -> dict[str, str]:
        return {**super().environment(), "PYTHONPATH": str(PEERS / "cpp")}
