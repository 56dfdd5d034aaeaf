"""Draws the diagrams of the documents: `python docs/diagrams/draw.py` writes the SVG files beside it.

Rules kept here:
- A diagram has its own background and follows the reader's colour scheme: it is readable on any page.
- No fonts, scripts or images from elsewhere.
- The packages are those of the import rule in `pyproject.toml`.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple
from xml.sax.saxutils import escape

HERE: Final = Path(__file__).parent
ROOT: Final = HERE.parents[1]

STYLE: Final = """
text { font: 14px system-ui, 'Segoe UI', 'DejaVu Sans', sans-serif; fill: #1f2430; }
.page { fill: #ffffff; stroke: #d5dae3; }
.box { fill: #eef3fb; stroke: #5b7db1; }
.warm { fill: #fdf1e3; stroke: #c07a2c; }
.cool { fill: #e6f4ec; stroke: #3f8f62; }
.plain { fill: #f6f7f9; stroke: #8a93a3; }
.planned { stroke-dasharray: 5 4; }
.title { font-weight: 600; }
.small { font-size: 12px; fill: #4a5262; }
.code { font: 12px ui-monospace, 'DejaVu Sans Mono', monospace; }
.line { stroke: #4a5262; fill: none; stroke-width: 1.5; }
.tip { fill: #4a5262; }
@media (prefers-color-scheme: dark) {
  text { fill: #e6e9ef; }
  .page { fill: #171a21; stroke: #3a4150; }
  .box { fill: #1f2c42; stroke: #7fa3dc; }
  .warm { fill: #3a2a17; stroke: #dd9a4c; }
  .cool { fill: #183226; stroke: #62b98a; }
  .plain { fill: #22262f; stroke: #7b8496; }
  .small { fill: #b3bac8; }
  .line { stroke: #b3bac8; }
  .tip { fill: #b3bac8; }
}
"""


class Canvas:
    """The elements of one diagram."""

    def __init__(self, width: int, height: int, title: str) -> None:
        self._parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
            f'height="{height}" role="img" aria-label="{escape(title)}">',
            f"<title>{escape(title)}</title>",
            f"<style>{STYLE}</style>",
            '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" '
            'orient="auto-start-reverse"><path class="tip" d="M0 0 L8 4 L0 8 z"/></marker></defs>',
            f'<rect class="page" x="0.5" y="0.5" width="{width - 1}" height="{height - 1}" rx="10"/>',
        ]

    def box(
        self, x: float, y: float, width: float, height: float, style: str = "box", radius: int = 6
    ) -> None:
        self._parts.append(
            f'<rect class="{style}" x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="{radius}"/>'
        )

    def text(self, x: float, y: float, words: str, style: str = "", anchor: str = "start") -> None:
        self._parts.append(
            f'<text class="{style}" x="{x:g}" y="{y:g}" text-anchor="{anchor}">{escape(words)}</text>'
        )

    def arrow(self, *points: tuple[float, float], dashed: bool = False) -> None:
        path = " L".join(f"{x:g} {y:g}" for x, y in points)
        style = "line planned" if dashed else "line"
        self._parts.append(f'<path class="{style}" d="M{path}" marker-end="url(#tip)"/>')

    def finished(self) -> str:
        return "\n".join([*self._parts, "</svg>", ""])


# The packages

ABOUT: Final = {
    "cli": "the cometmq command",
    "testing": "embedded broker, simulated clock and disk",
    "proxy": "gRPC clients",
    "spark": "data sources, sink, pipelines",
    "console": "web page",
    "broker": "send, pull, pop, timers",
    "client": "producers, consumers, admin",
    "replication": "log transfer",
    "namesrv": "routes",
    "store": "commit log, queues, index",
    "controller": "elects masters",
    "access": "users and rules",
    "remoting": "requests over connections, TLS",
    "wire": "bytes to values: frames, headers, records",
    "model": "messages, topics, errors",
    "ports": "clock, files, disk",
}


def layers() -> Iterator[list[str]]:
    """The packages from top to bottom; those in parentheses are planned."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    for layer in next(each for each in contracts if each["name"].startswith("packages"))["layers"]:
        yield [package.strip() for package in layer.split("|")]


def packages() -> str:
    width, left, row, gap = 760, 28, 46, 14
    rows = list(layers())
    height = 66 + len(rows) * (row + gap) + 14
    canvas = Canvas(width, height, "The packages of CometMQ: imports only point down")
    canvas.text(left, 34, "Imports only point down. Dashed packages are planned.", "title")
    for number, layer in enumerate(rows):
        y = 56 + number * (row + gap)
        each_width = (width - 2 * left - 34 - 10 * (len(layer) - 1)) / len(layer)
        for place, package in enumerate(layer):
            name = package.strip("()").rpartition(".")[2]
            x = left + place * (each_width + 10)
            there = (ROOT / "src" / "cometmq" / name).is_dir()
            canvas.box(x, y, each_width, row, "box" if there else "plain planned")
            canvas.text(x + 12, y + 19, name, "title")
            canvas.text(x + 12, y + 36, ABOUT[name], "small")
    canvas.arrow((width - left - 8, 60), (width - left - 8, height - 32))
    return canvas.finished()


# The way of a message


def message() -> str:
    canvas = Canvas(960, 566, "The way of a message from producer to listener")
    canvas.text(24, 34, "The way of a message", "title")
    canvas.box(24, 130, 190, 406, "warm")
    canvas.text(119, 154, "Producer", "title", "middle")
    canvas.box(324, 130, 312, 406, "box")
    canvas.text(480, 154, "Broker: one event loop", "title", "middle")
    canvas.box(746, 130, 190, 406, "cool")
    canvas.text(841, 154, "Consumer", "title", "middle")
    canvas.box(324, 54, 312, 46, "plain")
    canvas.text(480, 82, "Name server: topic to brokers and queues", "", "middle")

    def step(x: float, y: float, width: float, words: str, more: str = "") -> None:
        canvas.box(x, y, width, 44 if more else 30, "plain")
        canvas.text(x + width / 2, y + 19, words, "", "middle")
        if more:
            canvas.text(x + width / 2, y + 36, more, "small", "middle")

    step(40, 176, 158, "choose a queue", "round-robin")
    step(40, 252, 158, "send, await the reply")
    step(40, 414, 158, "receipt", "queue and offset")
    step(340, 176, 280, "split frames, check the topic", "remoting, wire, broker/send")
    step(340, 244, 280, "append to the commit log", "a mapped file; store/log")
    step(340, 312, 280, "queue entry and index keys", "store/dispatch")
    step(340, 380, 280, "reply: SEND_OK", "with SYNC_FLUSH after the shared fdatasync")
    step(340, 448, 280, "wake the held pull", "reply with views of the mapped file")
    canvas.text(480, 518, "fdatasync runs on a worker thread", "small", "middle")
    step(762, 176, 158, "rebalance", "its share of queues")
    step(762, 252, 158, "pull, held up to 15 s")
    step(762, 380, 158, "listener", "thread or coroutine")
    step(762, 468, 158, "offset moves", "saved every 5 s")

    for top, bottom in ((220, 242), (288, 310), (356, 378), (424, 446)):
        canvas.arrow((480, top), (480, bottom))
    canvas.arrow((119, 220), (119, 250))
    canvas.arrow((841, 220), (841, 250))
    canvas.arrow((841, 424), (841, 466))
    canvas.arrow((119, 128), (119, 77), (322, 77))
    canvas.text(128, 70, "1 GET_ROUTEINFO_BY_TOPIC", "small")
    canvas.arrow((841, 128), (841, 77), (638, 77))
    canvas.text(832, 70, "1 GET_ROUTEINFO_BY_TOPIC", "small", "end")
    canvas.arrow((198, 267), (262, 267), (262, 198), (338, 198))
    canvas.text(219, 292, "2 SEND_", "small")
    canvas.text(219, 308, "MESSAGE_V2", "small")
    canvas.arrow((340, 402), (268, 402), (268, 436), (200, 436))
    canvas.text(222, 454, "3 SEND_OK", "small")
    canvas.arrow((762, 267), (656, 267), (656, 466), (622, 466))
    canvas.text(662, 286, "4 PULL_", "small")
    canvas.text(662, 302, "MESSAGE", "small")
    canvas.arrow((620, 482), (732, 482), (732, 402), (760, 402))
    canvas.text(662, 500, "5 messages", "small")
    canvas.arrow((762, 498), (740, 498), (740, 522), (638, 522))
    canvas.text(644, 552, "6 UPDATE_CONSUMER_OFFSET", "small")
    return canvas.finished()


# The files of a store


def store() -> str:
    canvas = Canvas(960, 620, "The files of a store and what refers to what")
    canvas.text(24, 34, "A store directory", "title")
    files = [
        ("commitlog/00000000000000000000", "every message of every topic, in files of 1 GiB"),
        ("consumequeue/TOPIC/QUEUE/000…0", "300,000 entries of 20 bytes: where each message is"),
        ("index/20261115200721402", "keys and ids: 5,000,000 slots, 20,000,000 entries"),
        ("checkpoint", "up to when log, queues and index are on the disk"),
        ("config/*.json", "topics, groups, offsets, delay offsets"),
        ("timerwheel, timerlog/", "messages with a delivery time"),
        ("queueEnds", "where queues ended at the last clean stop"),
        ("lock, abort", "in use; the last stop was not clean"),
    ]
    for number, (name, about) in enumerate(files):
        y = 52 + number * 28
        canvas.text(40, y + 14, name, "code")
        canvas.text(330, y + 14, about, "small")
    y = 300
    canvas.text(
        24,
        y,
        "Queue entries and index entries lead into the commit log. Both can be rebuilt from it.",
        "title",
    )
    canvas.box(24, y + 20, 912, 74, "warm")
    canvas.text(40, y + 42, "commit log", "title")
    records = [
        ("orders/0", 150),
        ("audit/1", 90),
        ("orders/2", 170),
        ("orders/0", 130),
        ("audit/1", 110),
        ("…", 60),
    ]
    x = 150.0
    centres = []
    for name, width in records:
        canvas.box(x, y + 30, width, 54, "plain")
        canvas.text(x + width / 2, y + 62, name, "", "middle")
        centres.append(x + width / 2)
        x += width + 8
    canvas.box(24, y + 160, 440, 136, "box")
    canvas.text(448, y + 184, "consume queue orders/0", "title", "end")
    for number in range(3):
        left = 40 + number * 140
        canvas.box(left, y + 200, 132, 78, "plain")
        canvas.text(left + 66, y + 218, f"entry {number}" if number < 2 else "…", "", "middle")
        if number < 2:
            canvas.text(left + 66, y + 236, "physical offset: 8", "small", "middle")
            canvas.text(left + 66, y + 252, "record size: 4", "small", "middle")
            canvas.text(left + 66, y + 268, "tag hash: 8", "small", "middle")
    canvas.box(496, y + 160, 440, 136, "cool")
    canvas.text(512, y + 184, "index file", "title")
    canvas.box(512, y + 200, 124, 78, "plain")
    canvas.text(574, y + 224, "slot", "", "middle")
    canvas.text(574, y + 244, "hash of topic#key", "small", "middle")
    canvas.text(574, y + 260, "→ newest entry", "small", "middle")
    canvas.box(668, y + 200, 250, 78, "plain")
    canvas.text(793, y + 218, "entry", "", "middle")
    canvas.text(793, y + 236, "key hash: 4, physical offset: 8", "small", "middle")
    canvas.text(793, y + 252, "seconds since the file began: 4", "small", "middle")
    canvas.text(793, y + 268, "entry before it in the slot: 4", "small", "middle")
    canvas.arrow((636, y + 239), (666, y + 239))
    canvas.arrow((106, y + 198), (106, y + 128), (centres[0], y + 128), (centres[0], y + 86))
    canvas.arrow((246, y + 198), (246, y + 142), (centres[3], y + 142), (centres[3], y + 86))
    canvas.arrow((793, y + 198), (793, y + 128), (centres[4], y + 128), (centres[4], y + 86))
    return canvas.finished()


# A record


class Field(NamedTuple):
    name: str
    size: int
    example: str
    short: str = ""
    """What is written in a narrow box."""


RECORD: Final = (
    Field("total size", 4, "240"),
    Field("magic", 4, "DAA320A7"),
    Field("body CRC", 4, "4D7164BC"),
    Field("queue id", 4, "0"),
    Field("flag", 4, "0"),
    Field("queue offset", 8, "0"),
    Field("physical offset", 8, "0"),
    Field("system flag", 4, "0"),
    Field("born timestamp", 8, "2026-11-16 15:50:56.102"),
    Field("born host", 8, "127.0.0.1:59654"),
    Field("store timestamp", 8, "2026-11-16 15:50:56.105"),
    Field("store host", 8, "127.0.0.1:35523"),
    Field("reconsume times", 4, "0"),
    Field("prepared transaction offset", 8, "0", "prepared transaction"),
    Field("body length", 4, "11"),
)
"""The fixed part of a record between IPv4 hosts, in order, with the values of one stored message."""
VARIABLE: Final = (
    ("body", "11 bytes", "one bicycle", "cool"),
    ("topic length", "1 byte", "6", "box"),
    ("topic", "6 bytes", "orders", "cool"),
    ("properties length", "2 bytes", "132", "box"),
    ("properties", "132 bytes", "TAGS ⎵ paid ⎵ KEYS ⎵ 42 ⎵ …", "cool"),
)


def record() -> str:
    unit, left, top, row = 52, 72, 84, 56
    fixed = sum(field.size for field in RECORD)
    height = top + (fixed + 15) // 16 * row + 190
    canvas = Canvas(left + 16 * unit + 24, height, "A message in the commit log, byte by byte")
    canvas.text(24, 34, "A record of the commit log, byte by byte", "title")
    canvas.text(
        24,
        54,
        "Numbers are big-endian. Values are those of a message “one bicycle” to topic “orders”.",
        "small",
    )
    for number in range(16):
        canvas.text(left + number * unit + unit / 2, top - 8, str(number), "small", "middle")
    offset = 0
    for field in RECORD:
        remaining, first = field.size, True
        while remaining:
            column, size = offset % 16, min(remaining, 16 - offset % 16)
            x, y = left + column * unit, top + offset // 16 * row
            if column == 0:
                canvas.text(left - 12, y + 30, str(offset), "small", "end")
            canvas.box(x, y, size * unit, row, "box", 0)
            middle = x + size * unit / 2
            cut = size < field.size
            if cut and not first:
                canvas.text(middle, y + 32, f"… {field.short or field.name}", "small", "middle")
            else:
                canvas.text(middle, y + 23, (field.short or field.name) + (" …" if cut else ""), "", "middle")
                canvas.text(middle, y + 43, field.example, "code", "middle")
            offset += size
            remaining -= size
            first = False
    y = top + (fixed + 15) // 16 * row + 26
    canvas.text(24, y, f"From offset {fixed} on, lengths vary:", "small")
    edge = left
    for (name, length, example, style), width in zip(VARIABLE, (150, 124, 120, 150, 288), strict=True):
        canvas.box(edge, y + 12, width, 76, style, 0)
        canvas.text(edge + width / 2, y + 34, name, "", "middle")
        canvas.text(edge + width / 2, y + 54, length, "small", "middle")
        canvas.text(edge + width / 2, y + 76, example, "code", "middle")
        edge += width
    notes = (
        "Magic DAA320AB: the topic length takes 2 bytes. "
        "An IPv6 host takes 20 bytes instead of 8; two bits of the system flag tell.",
        "Properties are name, byte 01, value, byte 02. "
        "The rest of a file that is too small for the next record is a filler: size and CBD43194.",
    )
    for number, note in enumerate(notes):
        canvas.text(24, y + 118 + number * 22, note, "small")
    return canvas.finished()


DIAGRAMS: Final = {"packages": packages, "message": message, "store": store, "record": record}


def drawn(name: str) -> str:
    """One diagram as SVG."""
    return DIAGRAMS[name]()


def main() -> None:
    for name in DIAGRAMS:
        (HERE / f"{name}.svg").write_text(drawn(name), encoding="utf-8")


if __name__ == "__main__":
    main()
