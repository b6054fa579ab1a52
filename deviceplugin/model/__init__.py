"""What the agent knows, as plain values: units, GPUs, allocations, overrides, what its config says.

In come and out go only values; nothing here does I/O or reads a clock. No locks: values are frozen,
and the one that changes, the book of allocations, is changed under the lock of its owner
(`store.node_state`).
"""
