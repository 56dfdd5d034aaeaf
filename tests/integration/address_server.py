"""An HTTP address server, which lists name servers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class AddressServer:
    """Answers GET requests with one text, and remembers what was asked for."""

    def __init__(self, answer: bytes) -> None:
        self.answer = answer
        self.paths: list[str] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        self.paths.append(head.split()[1].decode())
        writer.write(self.answer)
        writer.close()
        await writer.wait_closed()


def ok(text: str) -> bytes:
    return f"HTTP/1.1 200 OK\r\nContent-Length: {len(text)}\r\nConnection: close\r\n\r\n{text}".encode()


@asynccontextmanager
async def address_server(answer: bytes) -> AsyncIterator[tuple[AddressServer, str]]:
    """A running one, and its `host:port`."""
    server = AddressServer(answer)
    listening = await asyncio.start_server(server.serve, "127.0.0.1", 0)
    async with listening:
        yield server, f"127.0.0.1:{listening.sockets[0].getsockname()[1]}"
