"""The extender: which nodes and GPUs a pod fits, for kube-scheduler and Volcano.

A program of its own (`__main__`, put together in `program`). What agents publish and the pods that
are bound come in by list and watch and are kept in `cluster`, under its one lock. What a scheduler
asks over HTTP (`wire`) is answered from there (`answers`, by what `search` finds on each node)
without a call to the API server, but for binds (`binding`).
"""
