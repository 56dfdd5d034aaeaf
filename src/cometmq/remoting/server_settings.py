"""What every server can be told about its port: TLS and limits, in the names in which users write them.

A server takes the rest from its own configuration, which has RocketMQ's keys for it (`PortConfig`).
"""

from __future__ import annotations

from typing import Annotated, Literal, Protocol

import msgspec
from msgspec import Meta, field

from cometmq.remoting.limits import Limits
from cometmq.remoting.tls import ServerTls


class ServerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """TLS, which Apache takes from system properties, and what is our own."""

    tls_server_mode: Literal["disabled", "permissive", "enforcing"] = field(
        name="tls.server.mode", default="permissive"
    )
    tls_server_cert_path: str | None = field(name="tls.server.certPath", default=None)
    tls_server_key_path: str | None = field(name="tls.server.keyPath", default=None)
    tls_server_key_password: str | None = field(name="tls.server.keyPassword", default=None)
    tls_server_trust_cert_path: str | None = field(name="tls.server.trustCertPath", default=None)
    tls_server_need_client_auth: Literal["none", "optional", "require"] = field(
        name="tls.server.need.client.auth", default="none"
    )
    max_connections: Annotated[int, Meta(ge=1, le=2**31 - 1)] = field(name="maxConnections", default=50_000)

    @property
    def tls(self) -> ServerTls:
        return ServerTls(
            mode=self.tls_server_mode,
            cert_path=self.tls_server_cert_path,
            key_path=self.tls_server_key_path,
            key_password=self.tls_server_key_password,
            trust_cert_path=self.tls_server_trust_cert_path,
            need_client_auth=self.tls_server_need_client_auth,
        )

    def limits(self, config: PortConfig) -> Limits:
        """The limits of a server with this configuration."""
        default = Limits()
        high = config.write_buffer_high_water_mark or default.write_high_bytes
        low = config.write_buffer_low_water_mark or default.write_low_bytes
        return Limits(
            idle_timeout_s=config.server_channel_max_idle_time_seconds,
            max_connections=self.max_connections,
            write_high_bytes=high,
            write_low_bytes=min(low, high),  # where only one of the two is set
        )


class PortConfig(Protocol):
    """What the configuration of a server says about its port."""

    @property
    def write_buffer_high_water_mark(self) -> int: ...

    @property
    def write_buffer_low_water_mark(self) -> int: ...

    @property
    def server_channel_max_idle_time_seconds(self) -> int: ...
