"""Signed requests, for brokers with access control.

Rule kept here: the signature covers the values of all custom fields, sorted by field name, and the body. So
it is made last, over exactly what is sent. The secret key itself is never sent.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from typing import Final

from cometmq.wire.frame.command import Body, Command, Payload

ACCESS_KEY: Final = "AccessKey"
SECURITY_TOKEN: Final = "SecurityToken"
SIGNATURE: Final = "Signature"


class RequestSigner:
    """Signs every call of a client."""

    def __init__(self, access_key: str, secret_key: str, security_token: str | None = None) -> None:
        self._access_key = access_key
        self._secret_key = secret_key.encode()
        self._security_token = security_token

    def before_call(self, address: str, code: int, fields: dict[str, str], body: Payload) -> None:
        fields.pop(SIGNATURE, None)
        fields[ACCESS_KEY] = self._access_key
        if self._security_token is not None:
            fields[SECURITY_TOKEN] = self._security_token
        fields[SIGNATURE] = signature(self._secret_key, fields, body)

    def after_call(self, address: str, code: int, answer: Command) -> None:
        pass


def signature(secret_key: bytes, fields: dict[str, str], body: Payload) -> str:
    """The signature of a request with this body and these fields, the signature excluded."""
    # Java sorts by UTF-16 units; for ASCII names that is code point order.
    digest = hmac.new(secret_key, digestmod=hashlib.sha1)
    digest.update("".join(fields[name] for name in sorted(fields)).encode())
    for chunk in (body,) if isinstance(body, Body) else body:
        digest.update(chunk)
    return base64.b64encode(digest.digest()).decode()
