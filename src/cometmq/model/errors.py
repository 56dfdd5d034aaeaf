"""Errors of CometMQ: one root, with everything that a caller needs to decide about a retry.

Rules kept here:
- Every error is a `CometError`, survives pickling (Spark workers send them), and says what to do next.
- `code` is the response code where a peer answered with one, else None.
- `retriable`: the same call may succeed later or elsewhere.
- `maybe_applied`: the outcome is unknown; a retry can apply the request twice. False means definite.
"""

from __future__ import annotations

from typing import Any


class CometError(Exception):
    """The root of all errors raised by CometMQ."""

    retriable: bool = False
    maybe_applied: bool = False

    def __init__(self, message: str, *, code: int | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.code = code

    def __str__(self) -> str:
        return self.message if self.code is None else f"{self.message} (code {self.code})"

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.args, self.__dict__)


def _rebuild(cls: type[CometError], args: tuple[Any, ...], state: dict[str, Any]) -> CometError:
    error = cls.__new__(cls, *args)
    error.args = args
    error.__dict__.update(state)
    return error


class ProtocolError(CometError):
    """Bytes from a peer that violate the protocol."""


class FramingError(ProtocolError):
    """The stream can no longer be split into frames; the connection has to be closed."""


class HeaderError(ProtocolError):
    """A frame whose header or custom fields cannot be read; the connection is still usable."""


class MessageError(CometError):
    """A message that cannot be encoded, for example because its topic or its properties are too long."""


class SettingsError(CometError):
    """A configuration value that cannot be used; the message names the key and where it came from."""


class StoreError(CometError):
    """A store directory that cannot be used, or a failed operation on it; the message names the file."""


class RemotingError(CometError):
    """A call to a peer that failed."""

    retriable = True


class ConnectError(RemotingError):
    """No connection could be made; nothing was sent."""


class ConnectionLostError(RemotingError):
    """The connection closed while an answer was awaited; the peer may have done the work."""

    maybe_applied = True


class CallTimeoutError(RemotingError):
    """No answer in time; the peer may have done the work unless the request was never written."""

    maybe_applied = True


class TooManyRequestsError(RemotingError):
    """The limit of requests in flight is reached; nothing was sent."""


class ResponseError(CometError):
    """The peer answered with a code other than success."""

    def __init__(self, message: str, *, code: int) -> None:
        super().__init__(message, code=code)


class ClientError(CometError):
    """A client cannot do what it was asked to do."""


class StateError(ClientError):
    """A client that is used before it was started, after it was stopped, or in a forked process."""


class GroupTakenError(ClientError):
    """Another member of the same client has the group already."""


class NotFoundError(ClientError):
    """Something asked for by name or id does not exist."""


class RouteNotFoundError(ClientError):
    """No name server has a route for the topic."""

    retriable = True

    def __init__(self, message: str, *, code: int = 10005) -> None:
        super().__init__(message, code=code)


class SendError(ClientError):
    """A message could not be sent; `retriable` and `maybe_applied` tell whether to try again.

    `attempts` has one sentence for every broker that was tried.
    """

    attempts: tuple[str, ...] = ()


class PartialBatchError(SendError):
    """Only a part of a batch was stored; `receipts` has the receipts of that part, in order."""

    receipts: tuple[Any, ...] = ()


class FlushError(SendError):
    """Messages that were sent in the background failed, `count` of them; `errors` has the first 100."""

    count: int = 0
    errors: tuple[CometError, ...] = ()
