"""TLS: contexts from settings, a self-signed certificate for tests, and a session over memory buffers.

The server has read the first byte when it knows that a peer speaks TLS, so it runs the handshake itself over
memory buffers.

Rules kept here: without certificate files the server uses a self-signed certificate made at first use
(RocketMQ's test mode), and clients in that mode trust anything; with files, a changed certificate is used
from the next connection on, and one that cannot be loaded does not replace the current one.
"""

from __future__ import annotations

import datetime
import logging
import os
import ssl
import tempfile
import threading
from pathlib import Path
from typing import Final, Literal

import msgspec

from cometmq.model.errors import ConnectError, SettingsError

log = logging.getLogger("cometmq.remoting")

TlsMode = Literal["disabled", "permissive", "enforcing"]
_READ_BYTES: Final = 64 * 1024


class ServerTls(msgspec.Struct, kw_only=True):
    """RocketMQ's `tls.server.*` settings."""

    mode: TlsMode = "permissive"
    cert_path: str | None = None
    key_path: str | None = None
    key_password: str | None = None
    trust_cert_path: str | None = None
    need_client_auth: Literal["none", "optional", "require"] = "none"


class ClientTls(msgspec.Struct, kw_only=True):
    """RocketMQ's `tls.client.*` settings."""

    trust_cert_path: str | None = None
    """Trusted certificates; without it, and with `auth_server` off, any server is trusted."""
    auth_server: bool = False
    cert_path: str | None = None
    key_path: str | None = None
    key_password: str | None = None


class ServerContexts:
    """The server's context, made again when its files change. Called from worker threads."""

    def __init__(self, settings: ServerTls) -> None:
        self._settings = settings
        self._lock = threading.Lock()
        self._context: ssl.SSLContext | None = None
        self._stamp: tuple[int, ...] = ()

    @property
    def has_files(self) -> bool:
        """Whether there are files to check at the start; a self-signed certificate is made when needed."""
        return self._settings.cert_path is not None or self._settings.trust_cert_path is not None

    def current(self) -> ssl.SSLContext:
        settings = self._settings
        with self._lock:
            try:
                stamp = _stamps(settings.cert_path, settings.key_path, settings.trust_cert_path)
                if self._context is None or stamp != self._stamp:
                    self._context = _server_context(settings)
                    self._stamp = stamp
            except SettingsError as error:  # perhaps one of two files is replaced already, the other not yet
                if self._context is None:
                    raise
                log.error("the changed TLS files are not used: %s", error)
            return self._context


def _stamps(*paths: str | None) -> tuple[int, ...]:
    try:
        found = [os.stat(path) for path in paths if path]
    except OSError as error:
        raise SettingsError(f"the TLS file {error.filename} cannot be read: {error.strerror}") from None
    return tuple(number for stat in found for number in (stat.st_mtime_ns, stat.st_ino, stat.st_size))


def _server_context(settings: ServerTls) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION  # a peer could make us do the expensive part again and again
    if settings.cert_path is None:
        _load_self_signed(context)
    else:
        _load_files(context, settings.cert_path, settings.key_path, settings.key_password)
    if settings.need_client_auth != "none":
        required = settings.need_client_auth == "require"
        context.verify_mode = ssl.CERT_REQUIRED if required else ssl.CERT_OPTIONAL
        if settings.trust_cert_path is None:
            raise SettingsError("tls.server.need.client.auth needs tls.server.trustCertPath")
        _trust(context, settings.trust_cert_path)
    return context


def client_context(settings: ClientTls) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.check_hostname = False  # brokers advertise addresses, not names
    if settings.trust_cert_path is not None:
        _trust(context, settings.trust_cert_path)
    elif settings.auth_server:
        context.load_default_certs()
    else:
        context.verify_mode = ssl.CERT_NONE
    if settings.cert_path is not None:
        _load_files(context, settings.cert_path, settings.key_path, settings.key_password)
    return context


def _trust(context: ssl.SSLContext, path: str) -> None:
    try:
        context.load_verify_locations(path)
    except OSError as error:
        raise SettingsError(f"the TLS trust store {path} cannot be loaded: {error}") from None


def _load_files(context: ssl.SSLContext, cert: str, key: str | None, password: str | None) -> None:
    try:
        # An empty password for a key that has one fails; none at all would make OpenSSL ask at the terminal.
        context.load_cert_chain(cert, key, password or "")
    except OSError as error:
        text = f"the TLS certificate {cert} cannot be loaded: {error}"
        if not password and isinstance(error, ssl.SSLError):
            text += "; if its key is encrypted, set the key password"
        raise SettingsError(text) from None


def _load_self_signed(context: ssl.SSLContext) -> None:
    cert, key = self_signed_certificate()
    # The ssl module takes key material from files only.
    with tempfile.TemporaryDirectory(prefix="cometmq-tls-") as folder:
        path = Path(folder, "self-signed.pem")
        path.touch(mode=0o600)
        path.write_bytes(key + cert)
        context.load_cert_chain(path)


def self_signed_certificate(name: str = "cometmq.test") -> tuple[bytes, bytes]:
    """Returns a certificate and its key as PEM, for tests and RocketMQ's TLS test mode."""
    # Imported here: only a server that meets its first TLS client without certificate files needs it.
    try:
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes, serialization
        from cryptography.hazmat.primitives.asymmetric import ec
        from cryptography.x509.oid import NameOID
    except ImportError:
        raise SettingsError(
            "TLS without certificate files needs cryptography, which is not installed: "
            "pip install 'cometmq[server]', or set tls.server.certPath and tls.server.keyPath"
        ) from None

    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=3650))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    encoding = serialization.Encoding.PEM
    key_pem = key.private_bytes(encoding, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return certificate.public_bytes(encoding), key_pem


class TlsSession:
    """One TLS connection over memory buffers."""

    __slots__ = ("_incoming", "_object", "_outgoing", "ended", "established")

    def __init__(self, context: ssl.SSLContext) -> None:
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._object = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self.established = False
        self.ended = False
        """The peer has ended its side."""

    def receive(self, data: bytes) -> bytes:
        """Take bytes of the peer; returns the plain bytes in them. Call `take_outgoing` afterwards."""
        self._incoming.write(data)
        try:
            if not self.established:
                self._object.do_handshake()
                self.established = True
            return self._read_all()
        except ssl.SSLWantReadError:
            return b""
        except ssl.SSLError as error:
            raise ConnectError(f"TLS failed: {error.reason or error}") from None

    def _read_all(self) -> bytes:
        parts: list[bytes] = []
        try:
            while part := self._object.read(_READ_BYTES):
                parts.append(part)
            self.ended = True
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLZeroReturnError:
            self.ended = True
        return b"".join(parts)

    def send(self, data: bytes | bytearray | memoryview) -> bytes:
        view = memoryview(data)
        while view:
            view = view[self._object.write(view) :]
        return self._outgoing.read()

    def end(self) -> bytes:
        """Returns the bytes that end our side."""
        try:
            self._object.unwrap()
        except ssl.SSLError:  # the peer's own goodbye is not here yet; nobody waits for it
            pass
        return self._outgoing.read()

    def take_outgoing(self) -> bytes:
        """Returns the bytes of the protocol itself, such as the handshake."""
        return self._outgoing.read()
