"""Message traces: what is recorded, how it is sent, how it is read back."""
