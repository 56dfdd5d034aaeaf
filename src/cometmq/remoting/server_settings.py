"""Settings of a server's port: TLS and limits, by the names that users write.

`PortConfig` has RocketMQ's keys, which are part of a server's own configuration; `ServerSettings` the rest.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

import msgspec
from msgspec import field

from cometmq.model.errors import SettingsError
from cometmq.model.settings import (
    Fixed,
    JavaInt,
    Layer,
    Natural,
    NextStart,
    NoEffect,
    Only,
    Positive,
    as_texts,
    refuse_unsupported,
    resolve,
)
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
    """Address to listen on, also for metrics and health; `127.0.0.1` lets only this machine in."""
    server_worker_threads: NoEffect[JavaInt] = 8
    """Threads for the network; one event loop does this work."""
    server_callback_executor_threads: NoEffect[JavaInt] = 0
    """Threads for callbacks; one event loop does this work."""
    server_selector_threads: NoEffect[JavaInt] = 3
    """Threads for reading from sockets; one event loop does this work."""
    server_oneway_semaphore_value: NoEffect[JavaInt] = 256
    """One-way requests in flight; the limits per connection bound them here."""
    server_async_semaphore_value: NoEffect[JavaInt] = 64
    """Asynchronous requests in flight; the limits per connection bound them here."""
    server_channel_max_idle_time_seconds: NextStart[Natural] = 120
    """Seconds without a byte after which a connection is closed; 0 never closes one."""
    server_socket_snd_buf_size: NoEffect[JavaInt] = 0
    """Send buffer of a socket; the kernel sizes it."""
    server_socket_rcv_buf_size: NoEffect[JavaInt] = 0
    """Receive buffer of a socket; the kernel sizes it."""
    write_buffer_high_water_mark: NextStart[Natural] = 0
    """Unsent bytes of a connection from which nothing more is read from it; 0 is 1 MiB."""
    write_buffer_low_water_mark: NextStart[Natural] = 0
    """Unsent bytes of a connection at which reading from it goes on; 0 is 256 KiB."""
    server_socket_backlog: NextStart[Natural] = 1024
    """Connections that the kernel holds until they are accepted."""
    server_netty_worker_group_enable: NoEffect[bool] = True
    """A group of Netty's threads; there is no Netty here."""
    server_pooled_byte_buf_allocator_enable: NoEffect[bool] = True
    """Netty's pool of buffers; there is no Netty here."""
    enable_shutdown_gracefully: bool = False
    """An orderly stop tells clients to leave, and waits for them."""
    shutdown_wait_time_seconds: Natural = 30
    """Seconds that such a stop waits for clients."""
    use_epoll_native_selector: NoEffect[bool] = False
    """Netty's native selector; the event loop uses epoll anyway."""

    @property
    def go_away_s(self) -> int:
        """How long an orderly stop waits for clients to leave."""
        return self.shutdown_wait_time_seconds if self.enable_shutdown_gracefully else 0


class ServerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """TLS, which Apache takes from system properties, and CometMQ's own settings."""

    tls_server_mode: Fixed[Literal["disabled", "permissive", "enforcing"]] = field(
        name="tls.server.mode", default="permissive"
    )
    """Whether clients may not (disabled), may (permissive) or must (enforcing) use TLS."""
    tls_server_cert_path: Fixed[str | None] = field(name="tls.server.certPath", default=None)
    """Certificate of the server, PEM; without it one is made for tests, which no client verifies."""
    tls_server_key_path: Fixed[str | None] = field(name="tls.server.keyPath", default=None)
    """Key of the certificate, PEM."""
    tls_server_key_password: Fixed[str | None] = field(name="tls.server.keyPassword", default=None)
    """Password of the key."""
    tls_server_trust_cert_path: Fixed[str | None] = field(name="tls.server.trustCertPath", default=None)
    """Certificates of those who sign clients, PEM."""
    tls_server_need_client_auth: Fixed[Literal["none", "optional", "require"]] = field(
        name="tls.server.need.client.auth", default="none"
    )
    """Whether clients show a certificate: none, optional or require."""
    tls_config_file: str = field(name="tls.config.file", default="")
    """File of its own for the TLS keys; write them into the `-c` file."""
    tls_server_auth_client: NoEffect[bool] = field(name="tls.server.authClient", default=False)
    """Verifies certificates of clients; one that is sent is always verified."""
    tls_test_mode_enable: Fixed[bool] = field(name="tls.test.mode.enable", default=True)
    """Makes a certificate for tests if none is given; off, `tls.server.certPath` has to be given."""

    # Calls to other servers
    tls_enable: Fixed[bool] = field(name="tls.enable", default=False)
    """Calls name servers over TLS; the same as the broker's `useTLS`."""
    tls_client_trust_cert_path: Fixed[str | None] = field(name="tls.client.trustCertPath", default=None)
    """Certificates of those who sign name servers, PEM."""
    tls_client_auth_server: Fixed[bool] = field(name="tls.client.authServer", default=False)
    """Verifies the certificates of name servers."""
    tls_client_cert_path: Fixed[str | None] = field(name="tls.client.certPath", default=None)
    """Certificate for calls to name servers, PEM."""
    tls_client_key_path: Fixed[str | None] = field(name="tls.client.keyPath", default=None)
    """Key of that certificate, PEM."""
    tls_client_key_password: Fixed[str | None] = field(name="tls.client.keyPassword", default=None)
    """Password of that key."""

    # Access control, which is not there yet: true is refused
    authentication_enabled: bool = field(name="authenticationEnabled", default=False)
    """Asks clients who they are; there is no access control yet."""
    authorization_enabled: bool = field(name="authorizationEnabled", default=False)
    """Checks what clients may do; there is no access control yet."""
    migrate_auth_from_v1_enabled: bool = field(name="migrateAuthFromV1Enabled", default=False)
    """Takes over the rules of RocketMQ before 5.3; there is no access control yet."""

    max_connections: Fixed[Positive] = field(name="maxConnections", default=50_000)
    """Connections of one port; further ones are refused."""

    def __post_init__(self) -> None:
        refuse_unsupported(self, UNSUPPORTED)
        for refused, reason in (
            (
                self.tls_server_mode == "disabled" and self.tls_server_need_client_auth != "none",
                "tls.server.need.client.auth asks for certificates, and tls.server.mode = disabled lets "
                "everybody in without one; set the mode to enforcing",
            ),
            (
                self.tls_server_need_client_auth != "none" and not self.tls_server_trust_cert_path,
                "tls.server.need.client.auth needs tls.server.trustCertPath, the certificates of those who "
                "sign clients",
            ),
            (
                bool(self.tls_server_key_path) and not self.tls_server_cert_path,
                "tls.server.keyPath is the key of no certificate; set tls.server.certPath, too",
            ),
            (
                not (self.tls_test_mode_enable or self.tls_server_cert_path)
                and self.tls_server_mode != "disabled",
                "tls.test.mode.enable = false allows no certificate for tests, and there is no other; set "
                "tls.server.certPath and tls.server.keyPath, or tls.server.mode = disabled",
            ),
        ):
            if refused:
                raise SettingsError(reason)

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
            self._refuse_unused_client_tls()
            return None
        return ClientTls(
            trust_cert_path=self.tls_client_trust_cert_path,
            auth_server=self.tls_client_auth_server,
            cert_path=self.tls_client_cert_path,
            key_path=self.tls_client_key_path,
            key_password=self.tls_client_key_password,
        )

    def _refuse_unused_client_tls(self) -> None:
        for key, value in as_texts(self).items():
            if key.startswith("tls.client.") and value not in ("", "false"):
                raise SettingsError(
                    f"{key} is for calls to other servers over TLS, and they are plain; set tls.enable = "
                    f"true, or leave {key} out"
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
