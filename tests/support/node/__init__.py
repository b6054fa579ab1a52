"""Nodes of every kind that tests need, from the agent's core alone to a node of real parts."""
