"""A node at work that hostile tenants of `benchmarks.hostile` run against.

`node` is the agent and the neighbours, `meter` how long the agent was held up.
"""
