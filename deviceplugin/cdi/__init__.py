"""How devices are injected: CDI specs that the agent writes, and what the node's runtime can do.

In come the GPUs and the driver's root; out go specs in the node's CDI directory and the choice of
``deviceListStrategy: auto``. The agent's loop writes; nothing here keeps state but the files.
"""
