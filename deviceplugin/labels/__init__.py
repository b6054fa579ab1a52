"""The node's labels, as GPU Feature Discovery writes them and a few of ours.

In come the GPUs, how they are shared and what is free; out go labels, as a feature file or an
object of Node Feature Discovery, or as a patch of the Node. The agent's loop writes the file; what
goes to the API server has a thread of its own.
"""
