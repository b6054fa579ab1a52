"""The node's labels, as GPU Feature Discovery writes them and a few of ours.

In come the GPUs, how they are shared and what is free; out go labels, as a feature file of Node
Feature Discovery or as a patch of the Node. One thread of the agent's own writes them.
"""
