"""Settings of a server's port: TLS and limits, by the names that users write.

`PortConfig` has RocketMQ's keys, which are part of a server's own configuration; `ServerSettings` the rest.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

import msgspec
from msgspec import field

from cometmq.model.settings import Fixed, JavaInt, Layer, Natural, Only, Positive, refuse_unsupported, resolve
from cometmq.remoting.limits import Limits
from cometmq.remoting.tls import ClientTls, ServerTls

_NO_ACCESS_CONTROL: Final = (
    "nobody would be asked for a key, and everybody would be let in; set it to false, and let only those "
    "reach the port who may: bindAddress, a firewall, tls.server.need.client.auth = require"
)
UNSUPPORTED: Final = (
    Only(
        "tls.config.file",
        "",
        "its keys are not read from a file of their own; copy them into the -c file, and leave this one out",
    ),
    Only("authenticationEnabled", "false", _NO_ACCESS_CONTROL),
    Only("authorizationEnabled", "false", _NO_ACCESS_CONTROL),
    Only("migrateAuthFromV1Enabled", "false", _NO_ACCESS_CONTROL),
)


def refuse_unsupported_keys(wanted: Mapping[str, str]) -> None:
    """Raise `SettingsError` if a request sets an unsupported key."""
    known = {rule.key: wanted[rule.key] for rule in UNSUPPORTED if rule.key in wanted}
    resolve(ServerSettings, [Layer("request", known)])


class PortConfig(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The port settings in the configuration of a server."""

    bind_address: Fixed[str] = "0.0.0.0"
    server_worker_threads: JavaInt = 8  # no effect
    server_callback_executor_threads: JavaInt = 0  # no effect
    server_selector_threads: JavaInt = 3  # no effect
    server_oneway_semaphore_value: JavaInt = 256  # no effect
    server_async_semaphore_value: JavaInt = 64  # no effect
    server_channel_max_idle_time_seconds: Natural = 120
    server_socket_snd_buf_size: JavaInt = 0  # no effect
    server_socket_rcv_buf_size: JavaInt = 0  # no effect
    write_buffer_high_water_mark: Natural = 0
    write_buffer_low_water_mark: Natural = 0
    server_socket_backlog: Natural = 1024
    server_netty_worker_group_enable: bool = True  # no effect
    server_pooled_byte_buf_allocator_enable: bool = True  # no effect
    enable_shutdown_gracefully: bool = False
    shutdown_wait_time_seconds: Natural = 30
    use_epoll_native_selector: bool = False  # no effect

    @property
    def go_away_s(self) -> int:
        """How long an orderly stop waits for clients to leave."""
        return self.shutdown_wait_time_seconds if self.enable_shutdown_gracefully else 0


class ServerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """TLS, which Apache takes from system properties, and CometMQ's own settings."""

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
    tls_config_file: str = field(name="tls.config.file", default="")
    tls_server_auth_client: bool = field(  # no effect: a certificate that is sent is always verified
        name="tls.server.authClient", default=False
    )
    tls_test_mode_enable: bool = field(  # no effect: it is on as long as no certificate is given
        name="tls.test.mode.enable", default=True
    )

    # Calls to other servers
    tls_enable: bool = field(name="tls.enable", default=False)
    """Call name servers over TLS; the broker's `useTLS` is the same."""
    tls_client_trust_cert_path: str | None = field(name="tls.client.trustCertPath", default=None)
    tls_client_auth_server: bool = field(name="tls.client.authServer", default=False)
    tls_client_cert_path: str | None = field(name="tls.client.certPath", default=None)
    tls_client_key_path: str | None = field(name="tls.client.keyPath", default=None)
    tls_client_key_password: str | None = field(name="tls.client.keyPassword", default=None)

    # Access control, which is not there yet: true is refused
    authentication_enabled: bool = field(name="authenticationEnabled", default=False)
    authorization_enabled: bool = field(name="authorizationEnabled", default=False)
    migrate_auth_from_v1_enabled: bool = field(name="migrateAuthFromV1Enabled", default=False)

    max_connections: Positive = field(name="maxConnections", default=50_000)

    def __post_init__(self) -> None:
        refuse_unsupported(self, UNSUPPORTED)

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

    def client_tls(self, *, enabled: bool = False) -> ClientTls | None:
        """Returns the TLS settings for calls to other servers; None without TLS."""
        if not (enabled or self.tls_enable):
            return None
        return ClientTls(
            trust_cert_path=self.tls_client_trust_cert_path,
            auth_server=self.tls_client_auth_server,
            cert_path=self.tls_client_cert_path,
            key_path=self.tls_client_key_path,
            key_password=self.tls_client_key_password,
        )

    def limits(self, config: PortConfig) -> Limits:
        default = Limits()
        high = config.write_buffer_high_water_mark or default.write_high_bytes
        low = config.write_buffer_low_water_mark or default.write_low_bytes
        return Limits(
            idle_timeout_s=config.server_channel_max_idle_time_seconds,
            max_connections=self.max_connections,
            write_high_bytes=high,
            write_low_bytes=min(low, high),  # where only one of the two is set
        )
