"""Texts of two clusters made comparable: what must differ between them is replaced by its meaning.

Rules kept here:
- Only what names a machine, a place or a moment is replaced; every other character is compared.
- Order is put aside only where RocketMQ itself leaves it to a hash table, and the caller has to say so.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import TypeAlias

from tests.compat.ask import standard_json

Json: TypeAlias = dict[str, "Json"] | list["Json"] | str | int | float | bool | None


def without_places(text: str, places: Mapping[str, str]) -> str:
    """Replace addresses, paths and ports by the names given for them, the longest first."""
    for place in sorted(places, key=len, reverse=True):
        # A port is also a number: it is one only where it stands alone.
        text = re.sub(rf"(?<!\d){re.escape(place)}(?!\d)", f"<{places[place]}>", text)
    return text


def without_measurements(text: str) -> str:
    """Replace what is measured at the moment: loads, rates, hours, disk ratios, how far timers are behind."""
    text = re.sub(r"\d+-\d+\(", "<behind>(", text)
    return re.sub(r"\s*\d+\.\d+", " <measured>", text)


def sorted_lines(text: str) -> str:
    return "\n".join(sorted(text.splitlines()))


def unordered(text: str) -> Json:
    """A JSON body as a value whose lists are sorted, in either of RocketMQ's two spellings."""
    return _sort_lists(json.loads(standard_json(text)))


def _sort_lists(value: Json) -> Json:
    if isinstance(value, dict):
        return {key: _sort_lists(member) for key, member in value.items()}
    if isinstance(value, list):
        return sorted((_sort_lists(member) for member in value), key=lambda member: json.dumps(member))
    return value
