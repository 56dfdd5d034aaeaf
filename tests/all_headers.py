"""All declared headers by request code: importing a module of `cometmq.wire.headers` declares its headers."""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules

from cometmq.wire import headers
from cometmq.wire.header.schema import REQUEST_HEADERS, RESPONSE_HEADERS

__all__ = ["HEADER_MODULES", "REQUEST_HEADERS", "RESPONSE_HEADERS"]

HEADER_MODULES = [import_module(f"{headers.__name__}.{each.name}") for each in iter_modules(headers.__path__)]
