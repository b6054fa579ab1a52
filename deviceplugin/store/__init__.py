"""What the agent keeps on disk: the checkpoint with its journal, and the files of each slice.

In come allocations and limits, out go files that survive a kill at any instruction. `node_state`
owns the agent's one lock; everything else here is called under it, or says otherwise.
"""
