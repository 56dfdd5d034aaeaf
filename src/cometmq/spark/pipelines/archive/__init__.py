"""Archive topics as Parquet."""

from cometmq.spark.pipelines.archive.job import ArchiveJob, archive

__all__ = ["ArchiveJob", "archive"]
