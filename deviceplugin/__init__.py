"""The node agent: hands out slices of GPUs to the kubelet and keeps their limits.

In come the kubelet's calls (`kubelet`), the config file and NVML; out go answers, the files of each
slice, metrics and Events. `agent` puts the parts together; each package says who synchronises it.
Imports run downwards: agent, kubelet and http, core, then mps, watch and kube, recovery, store,
policy, config and inventory, model; import-linter holds that.
"""
