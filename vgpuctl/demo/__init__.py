"""The demo: pod manifests go in, container-like processes with hard GPU slices come out.

`scenario` is the main job. It stands on a stand-in for what a node has around the agent: a kubelet
(deviceplugin.testing), a container runtime (`container`, with `launch` and `rootfs` on the
other side of exec), and a simulated machine (libvgpu.sim). The agent itself is the real one.
"""
