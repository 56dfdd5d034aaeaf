"""The only doors to the operating system: clock and files. Tests put simulated ones in their place."""
