"""The agent's config file: its keys, its values, and when it is read again.

In comes a YAML file, out comes an `AgentConfig` that was checked as a whole, or one error that
names key and line. All values are frozen; `reload` belongs to the agent's loop.
"""
