"""The files of timers: timer log, timing wheel, checkpoint."""
