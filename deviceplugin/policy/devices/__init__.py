"""Which GPUs the node has, what of them is offered to the kubelet, and as what.

In come a config, the GPUs that NVML lists and the book of allocations; out come the layout that is
in force, the units and devices that are free, and what does not fit together, as a sentence.
"""
