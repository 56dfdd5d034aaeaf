"""Signed requests."""

from __future__ import annotations

import base64
import hashlib
import hmac

from cometmq.client.instance.signing import RequestSigner


def test_the_values_in_the_order_of_their_names_and_the_body_are_signed() -> None:
    fields = {"topic": "T", "a": "1", "Z": "9", "Signature": "old"}
    RequestSigner("alice", "secret").before_call("somewhere", 10, fields, b"body")
    wanted = hmac.new(b"secret", b"alice" + b"9" + b"1" + b"T" + b"body", hashlib.sha1).digest()
    assert fields["Signature"] == base64.b64encode(wanted).decode()
    assert "secret" not in "".join(fields.values())


def test_a_token_is_signed_with_the_rest() -> None:
    fields: dict[str, str] = {}
    RequestSigner("alice", "secret", "token").before_call("somewhere", 10, fields, [b"bo", b"dy"])
    wanted = hmac.new(b"secret", b"alicetokenbody", hashlib.sha1).digest()
    assert fields == {
        "AccessKey": "alice",
        "SecurityToken": "token",
        "Signature": base64.b64encode(wanted).decode(),
    }
