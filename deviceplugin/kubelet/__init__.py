"""The kubelet's gRPC, the only gRPC there is: device plugin, registration, podresources.

In come the kubelet's calls, out go answers of `core` in its messages. gRPC's threads call `core`,
which takes the agent's lock; the registrar belongs to the agent's loop.
"""
