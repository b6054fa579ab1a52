"""Which GPUs the node has, how they are connected, and whether they are healthy.

In comes what NVML answers, out come `model.gpus.Gpu` values, closeness and verdicts. `nvml` opens
and closes NVML for each listing (`gpu_facts` and `mig` read one GPU), `gpu_watch` is a thread that
lists again and again, and `health_watch` one that keeps NVML open and waits for events; the rest is
pure.
"""
