"""The requests that a name server answers, one family a module.

To add a request code: declare it in `wire/codes.py`, its header in `wire/headers/namesrv.py`, and write a
method marked with `@handles` in the module of its family here. `HANDLERS` lists the families.
"""

from __future__ import annotations

from cometmq.namesrv.handlers.config import ConfigHandlers
from cometmq.namesrv.handlers.kv import KvHandlers
from cometmq.namesrv.handlers.registration import RegistrationHandlers
from cometmq.namesrv.handlers.route import RouteHandlers
from cometmq.namesrv.handlers.topics import TopicHandlers

HANDLERS = (RegistrationHandlers, RouteHandlers, TopicHandlers, KvHandlers, ConfigHandlers)
