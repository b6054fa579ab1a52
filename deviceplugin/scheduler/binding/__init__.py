"""Binds pods on the replica that leads, and has those that were refused tried again."""
