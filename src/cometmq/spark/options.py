"""Options of sources and sinks: the values of `.option(name, value)`, checked.

Rules kept here:
- Names are RocketMQ's, or those of Spark's Kafka source. Case does not matter, as in Spark.
- The scalar fields of an options struct are options: name, type, default and least value are declared once.
- An unknown option is an error that names the nearest known one; Spark itself would ignore it.
- An invalid value is an error that says what is valid. Secrets never appear in errors.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Annotated, Any, Final, Literal, get_args, get_origin

import msgspec

from cometmq.client.settings import ClientSettings
from cometmq.model.errors import SettingsError
from cometmq.remoting.tls import ClientTls

IncludeProperties = bool | Literal["user"]
"""Which properties a source returns: all, none, or those set by senders."""

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
"""How a cluster is reached."""
KAFKA_OPTIONS: Final = {
    "subscribe": "topic, or topics for several ('a,b')",
    "subscribePattern": "topicPattern",
    "includeHeaders": "includeProperties for a source; a sink sends the column properties",
    "groupIdPrefix": "group",
    "startingOffsetsByTimestampStrategy": "nothing: a queue without a message at that time starts at its end",
    "fetchOffset.numRetries": "pollTimeoutMs, how long a broker may be unreachable",
    "fetchOffset.retryIntervalMs": "pollTimeoutMs, how long a broker may be unreachable",
    "kafkaConsumer.pollTimeoutMs": "pollTimeoutMs",
    "kafka.bootstrap.servers": "namesrvAddr, the name servers",
    "kafka.group.id": "group",
    "kafka.isolation.level": "nothing: only committed transactions are in a topic",
    "kafka.transactional.id": "exactlyOnce",
    "kafka.max.request.size": "maxMessageSize",
    "kafka.security.protocol": "tls.enable",
}
"""Options of Spark's Kafka source and sink, and what takes their place."""
KAFKA_PREFIXES: Final = {
    "kafka.ssl.": "tls.client.trustCertPath, tls.client.certPath and tls.client.keyPath",
    "kafka.sasl.": "accessKey and secretKey",
    "kafka.": "nothing: settings of Kafka's clients have no effect here",
}
SPARKS_OWN: Final = ("checkpointLocation", "queryName")
"""Options that Spark passes on although they are its own."""

TOPIC_OPTIONS: Final = ("topic", "topics", "topicPattern")
_YES: Final = frozenset({"true", "yes", "1", "on"})
_NO: Final = frozenset({"false", "no", "0", "off"})
_DURATION: Final = re.compile(r"(\d+) *(ms|s|m|min|h|d|)")
_UNITS_MS: Final = {"": 1, "ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}
_NUMBERS: Final = (int, int | None)
_SCALARS: Final = (bool, str, str | None, IncludeProperties, *_NUMBERS)


class Options:
    def __init__(self, given: Mapping[str, str], known: Collection[str], what: str) -> None:
        self._given = {name.lower(): str(value).strip() for name, value in given.items()}
        names = {*known, *SPARKS_OWN}
        lower = {each.lower() for each in names}
        for name in sorted(given):
            if name.lower() not in lower:
                raise SettingsError(_unknown(name, names, what))

    def has(self, name: str) -> bool:
        """Whether the option is given and not empty."""
        return bool(self._given.get(name.lower()))

    def text(self, name: str) -> str | None:
        """The value; None if it is missing or empty."""
        return self._given.get(name.lower()) or None

    def number(self, name: str, *, least: int = 1) -> int | None:
        """A whole number; None if it is missing."""
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

    def flag(self, name: str, choices: str = "true or false") -> bool:
        """True or false; false if it is missing."""
        value = (self.text(name) or "false").lower()
        if value not in _YES | _NO:
            raise SettingsError(f"{name} is {value!r}; it has to be {choices}")
        return value in _YES

    def included_properties(self, name: str) -> IncludeProperties:
        """True for all, `user` for those set by senders, or false for none."""
        is_user = (self.text(name) or "").lower() == "user"
        return "user" if is_user else self.flag(name, "true, false or user")

    def time_ms(self, name: str) -> int | None:
        """Milliseconds since 1970, or ISO 8601, in UTC unless it names a zone."""
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

    def duration_ms(self, name: str) -> int | None:
        """A time as Spark writes it: `500ms`, `10s`, `15m`, `2h`, `1d`, or milliseconds."""
        value = self.text(name)
        if value is None:
            return None
        found = _DURATION.fullmatch(value.lower())
        if found is None:
            raise SettingsError(f"{name} is {value!r}; write a time such as 500ms, 10s, 15m, 2h or 1d")
        return int(found[1]) * _UNITS_MS[found[2]]

    def only_one_of(self, *names: str) -> str | None:
        """The option of these that is given; None if none is."""
        given = [name for name in names if self.has(name)]
        if len(given) > 1:
            raise SettingsError(f"{' and '.join(given)} exclude each other; give one of them")
        return given[0] if given else None

    def topics(self) -> tuple[tuple[str, ...], str | None]:
        """The names in `topic` or `topics`, sorted, and `topicPattern`."""
        given = self.only_one_of(*TOPIC_OPTIONS)
        text = self.text(given or "topic") or ""
        if given == "topicPattern":
            try:
                re.compile(text)
            except re.error as error:
                raise SettingsError(f"topicPattern {text!r} is no regular expression: {error}") from None
            return (), text
        names = text.split(",") if given == "topics" else [text]
        return tuple(sorted({name.strip() for name in names if name.strip()})), None

    def scalars(self, struct: type[msgspec.Struct]) -> dict[str, Any]:
        """The given options that are scalar fields of the struct, by the names of the fields."""
        return {
            field.name: self._scalar(field.encode_name, field.type)
            for field in _scalar_fields(struct)
            if self.has(field.encode_name)
        }

    def _scalar(self, name: str, annotation: Any) -> object:
        if annotation is bool:
            return self.flag(name)
        if annotation == IncludeProperties:
            return self.included_properties(name)
        least = 1
        if get_origin(annotation) is Annotated:
            annotation, limits = get_args(annotation)
            least = limits.ge
        return self.number(name, least=least) if annotation in _NUMBERS else self.text(name)

    def client_settings(self) -> ClientSettings:
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
        if not self.flag("tls.enable"):
            if names:
                raise SettingsError(f"{names[0]} has no effect without tls.enable=true; give it, too")
            return None
        return ClientTls(
            trust_cert_path=self.text("tls.client.trustCertPath"),
            auth_server=self.flag("tls.client.authServer"),
            cert_path=self.text("tls.client.certPath"),
            key_path=self.text("tls.client.keyPath"),
            key_password=self.text("tls.client.keyPassword"),
        )


def _unknown(name: str, known: Collection[str], what: str) -> str:
    """The error for an unknown option. Spark passes names in lower case; those of Kafka get theirs back."""
    for kafka, ours in KAFKA_OPTIONS.items():
        if kafka.lower() == name.lower():
            return f"{what} has no option {kafka!r}, which is Kafka's; use {ours}"
    for prefix, ours in KAFKA_PREFIXES.items():
        if name.lower().startswith(prefix):
            return f"{what} has no option {name!r}, which is Kafka's; use {ours}"
    hint = nearest(name, known, f"there are {', '.join(sorted(known))}")
    return f"{what} has no option {name!r}; {hint}"


def scalar_options(struct: type[msgspec.Struct]) -> list[str]:
    """The names of the options that are scalar fields of the struct."""
    return [field.encode_name for field in _scalar_fields(struct)]


def _scalar_fields(struct: type[msgspec.Struct]) -> Iterator[msgspec.structs.FieldInfo]:
    for field in msgspec.structs.fields(struct):
        annotation = get_args(field.type)[0] if get_origin(field.type) is Annotated else field.type
        if annotation in _SCALARS:
            yield field


def nearest(name: str, known: Iterable[str], otherwise: str, *, cutoff: float = 0.6) -> str:
    """A hint for a misspelt name: the nearest known one, or `otherwise`; case does not matter."""
    names = {each.lower(): each for each in known}
    near = difflib.get_close_matches(name.lower(), names, n=1, cutoff=cutoff)
    return f"did you mean {names[near[0]]}?" if near else otherwise
