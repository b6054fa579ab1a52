"""Programs that run as a hostile tenant, in a container on a node that is at work.

`attacks` is what they do, `container` what they have, `node` the agent and the neighbours that they
run against, `meter` how long the agent was held up.
"""
