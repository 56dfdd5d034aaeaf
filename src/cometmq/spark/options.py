"""Options of sources and sinks: what people write into `.option(name, value)`, checked.

Rules kept here:
- Names are RocketMQ's and, where RocketMQ has none, those of Spark's Kafka source. Case does not count, since
  it does not for Spark.
- An option that nobody knows is an error that names the nearest one: Spark says nothing of such, and a query
  that quietly ignores `startingOffset` is worse than none.
- A value that cannot work is an error that says what would. Secrets are never part of it.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Mapping
from datetime import UTC, datetime
from typing import Final, Literal, NoReturn

from cometmq.client.settings import ClientSettings
from cometmq.model.errors import SettingsError
from cometmq.remoting.tls import ClientTls

IncludeProperties = bool | Literal["user"]
"""Which properties a source makes: all, none, or those that senders chose."""

CONNECTION_OPTIONS: Final = (
    "namesrvAddr",
    "accessKey",
    "secretKey",
    "securityToken",
    "unitName",
    "callTimeoutMs",
    "tls.enable",
    "tls.client.trustCertPath",
    "tls.client.authServer",
    "tls.client.certPath",
    "tls.client.keyPath",
    "tls.client.keyPassword",
)
"""How a cluster is reached: the same for everything that talks to brokers."""
SPARKS_OWN: Final = ("checkpointLocation", "queryName")
"""What Spark leaves among the options although it is not for us."""

_YES: Final = frozenset({"true", "yes", "1", "on"})
_NO: Final = frozenset({"false", "no", "0", "off"})


class Options:
    """The options of one query."""

    def __init__(self, given: Mapping[str, str], known: Collection[str], what: str) -> None:
        self._given = {name.lower(): str(value).strip() for name, value in given.items()}
        names = {name.lower(): name for name in (*known, *SPARKS_OWN)}
        for name in self._given:
            if name not in names:
                _refuse_unknown(name, names, what)

    def has(self, name: str) -> bool:
        """Whether the option is given, and not empty."""
        return bool(self._given.get(name.lower()))

    def text(self, name: str) -> str | None:
        """The value as it is; None if there is none."""
        return self._given.get(name.lower()) or None

    def number(self, name: str, *, least: int = 1) -> int | None:
        """A whole number; None if there is none."""
        value = self.text(name)
        if value is None:
            return None
        try:
            number = int(value)
        except ValueError:
            number = least - 1
        if number < least:
            raise SettingsError(f"{name} is {value!r}; it has to be a whole number of at least {least}")
        return number

    def flag(self, name: str, *, default: bool) -> bool:
        """True or false."""
        value = (self.text(name) or str(default)).lower()
        if value not in _YES | _NO:
            raise SettingsError(f"{name} is {value!r}; it has to be true or false")
        return value in _YES

    def included_properties(self, name: str) -> IncludeProperties:
        """True for all, `user` for those that are not the system's, or false for none."""
        value = (self.text(name) or "false").lower()
        if value == "user":
            return "user"
        if value not in _YES | _NO:
            raise SettingsError(f"{name} is {value!r}; it has to be true, false or user")
        return value in _YES

    def time_ms(self, name: str) -> int | None:
        """A point in time: milliseconds since 1970, or as ISO 8601 has it, in UTC if it names no zone."""
        value = self.text(name)
        if value is None:
            return None
        if value.isdecimal():
            return int(value)
        try:
            moment = datetime.fromisoformat(value)
        except ValueError:
            raise SettingsError(
                f"{name} is {value!r}; write milliseconds since 1970, or 2026-01-31T12:00:00+00:00"
            ) from None
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=UTC)
        return round(moment.timestamp() * 1000)

    def only_one_of(self, *names: str) -> str | None:
        """Which of these is given; None if none is."""
        given = [name for name in names if self.has(name)]
        if len(given) > 1:
            raise SettingsError(f"{' and '.join(given)} exclude each other; give one of them")
        return given[0] if given else None

    def client_settings(self) -> ClientSettings:
        """How the cluster is reached."""
        if not self.has("namesrvAddr"):
            raise SettingsError("namesrvAddr is missing; write .option('namesrvAddr', 'host:9876')")
        return ClientSettings(
            namesrv=self.text("namesrvAddr") or "",
            unit_name=self.text("unitName"),
            call_timeout_ms=self.number("callTimeoutMs") or 3_000,
            access_key=self.text("accessKey"),
            secret_key=self.text("secretKey"),
            security_token=self.text("securityToken"),
            tls=self._tls(),
        )

    def _tls(self) -> ClientTls | None:
        names = [name for name in CONNECTION_OPTIONS if name.startswith("tls.client.") and self.has(name)]
        if not self.flag("tls.enable", default=False):
            if names:
                raise SettingsError(f"{names[0]} has no effect without tls.enable=true; give it, too")
            return None
        return ClientTls(
            trust_cert_path=self.text("tls.client.trustCertPath"),
            auth_server=self.flag("tls.client.authServer", default=False),
            cert_path=self.text("tls.client.certPath"),
            key_path=self.text("tls.client.keyPath"),
            key_password=self.text("tls.client.keyPassword"),
        )


def _refuse_unknown(name: str, names: Mapping[str, str], what: str) -> NoReturn:
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.6)
    hint = f"did you mean {names[near[0]]}?" if near else f"there are {', '.join(sorted(names.values()))}"
    raise SettingsError(f"{what} has no option {name!r}; {hint}")
