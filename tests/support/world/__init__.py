"""A node as one program: the agent whole, a kubelet, an API server, a disk and GPUs, from a seed.

`turns` runs one thread at a time and lets time jump where all wait, `waits` puts that in the place
of the agent's clock, locks and threads (`deviceplugin.runtime`), `wire` in the place of gRPC,
`disk` makes each change of a file a point where the agent may be killed, and `node` puts the parts
together. A seed says all that happens.
"""
