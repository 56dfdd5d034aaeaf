"""The first bytes of a connection, told apart in any chunks."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cometmq.model.errors import FramingError
from cometmq.remoting.preamble import Detected, Preamble

V2 = b"\r\n\r\n\x00\r\nQUIT\n"
V1_HEADER = b"PROXY TCP4 192.0.2.7 198.51.100.1 12345 9876\r\n"
V2_HEADER = (
    V2
    + b"\x21\x11\x00\x14"
    + bytes([192, 0, 2, 7, 198, 51, 100, 1])
    + b"\x30\x39\x26\x94"
    + b"\xe1\x00\x05hello"
)


@given(
    header=st.sampled_from([b"", V1_HEADER, V2_HEADER]),
    first=st.sampled_from([b"\x00", b"\x01", b"\x16"]),
    rest=st.binary(max_size=20),
    cuts=st.sets(st.integers(min_value=1, max_value=90), max_size=5),
)
def test_any_chunking_gives_the_same_verdict_address_and_rest(
    header: bytes, first: bytes, rest: bytes, cuts: set[int]
) -> None:
    data = header + first + rest
    edges = [0, *sorted(cut for cut in cuts if cut < len(data)), len(data)]
    preamble = Preamble()
    fed = 0
    for start, end in pairwise(edges):
        fed = end
        if preamble.feed(data[start:end]) is not Detected.MORE:
            break
    assert preamble.detected is (Detected.TLS if first == b"\x16" else Detected.PLAIN)
    assert preamble.rest + data[fed:] == first + rest
    if header:
        assert preamble.proxy is not None
        assert preamble.proxy.source == ("192.0.2.7", 12345)
        assert preamble.proxy.destination == ("198.51.100.1", 9876)
        assert preamble.proxy.tlvs == ({0xE1: b"hello"} if header == V2_HEADER else {})
    else:
        assert preamble.proxy is None


@given(data=st.one_of(st.binary(max_size=60), st.binary(max_size=60).map(lambda tail: V2 + tail)))
def test_arbitrary_bytes_give_a_verdict_or_a_framing_error(data: bytes) -> None:
    preamble = Preamble()
    try:
        for position in range(len(data)):
            if preamble.feed(data[position : position + 1]) is not Detected.MORE:
                break
    except FramingError:
        assert data[:1] in (b"P", b"\r")


def test_a_frame_is_plain_from_its_first_byte_on() -> None:
    assert Preamble().feed(b"\x00") is Detected.PLAIN


def test_a_tls_hello_is_known_by_its_first_byte() -> None:
    assert Preamble().feed(b"\x16") is Detected.TLS


def test_no_byte_is_no_verdict() -> None:
    assert Preamble().feed(b"") is Detected.MORE


@pytest.mark.parametrize("port", ["-1", "65536", "+80", "8_0", "²", ""])
def test_a_port_that_is_none_is_refused(port: str) -> None:
    with pytest.raises(FramingError, match="PROXY line that cannot be read"):
        Preamble().feed(f"PROXY TCP4 192.0.2.7 192.0.2.8 {port} 1\r\n".encode("latin-1"))
