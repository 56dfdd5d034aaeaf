"""`cometmq pipeline rebuild`; it asks first, as `cometmq store rebuild` does."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cometmq.cli.common.connect import AsJson, Yes
from cometmq.cli.common.output import confirm, shown
from cometmq.cli.pipeline.options import Conf, Definition, Master, Run, Verbose, need_spark


def rebuild(
    directory: Annotated[
        Path, typer.Argument(help="A store directory.", metavar="DIR", exists=True, file_okay=False)
    ],
    config: Annotated[
        Path | None, typer.Option("-c", help="The broker's properties file.", metavar="FILE")
    ] = None,
    yes: Yes = False,
    file: Definition = None,
    master: Master = None,
    conf: Conf = None,
    verbose: Verbose = False,
    as_json: AsJson = False,
) -> None:
    """Rebuild the consume queues and the index of a large store from its commit log, on Spark.

    Examples:
      cometmq pipeline rebuild ~/store
      cometmq pipeline rebuild /mnt/shared/store --master spark://host:7077 --yes

    The broker has to be stopped, and all workers have to see the store under the same path. The old queues
    and index stay in place until the new ones are complete; an interrupted rebuild starts again.
    """
    need_spark()
    from cometmq.cli.store import progress_bar, show_rebuilt, store_settings
    from cometmq.spark.rebuild.rebuild import rebuild as rebuild_store

    run = Run("rebuild", file, master=master, conf=conf, verbose=verbose, as_json=as_json)
    settings = store_settings(config)
    confirm(f"Replace the queues and the index of {directory}?", yes=yes)
    with run.spark() as spark, progress_bar("rebuilding") as progress:
        result = rebuild_store(spark, directory, settings, progress=progress)
    shown(result, show_rebuilt, as_json=as_json)
