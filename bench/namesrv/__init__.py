"""The name server beside Apache's."""
