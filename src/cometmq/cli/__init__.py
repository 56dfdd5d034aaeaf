"""The `cometmq` command: one module a command group; each parses, calls, and prints."""

from __future__ import annotations

import sys
from typing import Final

_OF_THE_EXTRA: Final = ("click", "rich", "typer")


def run() -> None:
    """Run the command, or say what has to be installed first."""
    try:
        from cometmq.cli.main import main

        main()
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] not in _OF_THE_EXTRA:
            raise
        command = " ".join(["cometmq", *sys.argv[1:2]])
        sys.exit(f"{command} needs {error.name}, which is not installed: pip install 'cometmq[server]'")
