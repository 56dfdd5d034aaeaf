"""CometMQ: Apache RocketMQ's message system in Python."""

from cometmq._version import __version__
from cometmq.model.errors import CometError

__all__ = ["CometError", "__version__"]
