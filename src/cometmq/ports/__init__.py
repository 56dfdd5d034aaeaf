"""The operating system: clock, files and disk. Tests replace them by simulated ones."""
