"""The chart on a real cluster of one node: control plane, kubelet, containerd (`make e2e-node`).

What helm installs offers simulated GPUs, the extender is asked by the real scheduler, and pods run
with their slices whatever is changed, restarted, upgraded and taken away around them.

As root. One cluster serves all files, and `conftest` makes it.
VGPU_KUBERNETES says on which versions: names of folders in tests/e2e/kubernetes, or `all` as in
`make check-long`.
"""
