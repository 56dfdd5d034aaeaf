"""What all commands share: connections, output, times."""
