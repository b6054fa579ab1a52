"""The scheduler extender: its inputs, and ways to run it."""
