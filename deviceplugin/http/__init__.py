"""What the agent serves over HTTP: metrics, probes, and the control socket of `vgpuctl`.

In come requests, out go pages made from `core`, `watch` and `mps`. Nothing here decides anything;
what changes limits goes through `core`.
"""
