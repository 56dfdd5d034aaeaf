"""Frames and commands of the remoting protocol."""
