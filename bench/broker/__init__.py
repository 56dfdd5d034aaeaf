"""The broker beside Apache's, and before and after a change."""
