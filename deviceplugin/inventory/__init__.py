"""Which GPUs the node has, how they are connected, and whether they are healthy.

In comes what NVML answers, out come `model.gpus.Gpu` values, closeness and verdicts. `nvml` opens
and closes NVML for each question; `health_watch` is a thread that has NVML to itself; the rest is
pure.
"""
