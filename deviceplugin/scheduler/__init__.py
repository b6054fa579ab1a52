"""The extender: which nodes and GPUs a pod fits, for kube-scheduler and Volcano.

A program of its own (`__main__`). What agents publish and the pods that are bound come in by list
and watch (`follow`) and are kept in `cluster`, under its one lock. What a scheduler asks over HTTP
(`server`) is answered from there without a call to the API server, but for `bind`.
"""
