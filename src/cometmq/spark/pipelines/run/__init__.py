"""Running a pipeline: its job, session, streams and files."""
