"""The shim, the files it shares with the host, and the simulated GPU. Knows no Kubernetes.

``include/`` is the contract in C, ``src/`` the shim (libvgpu.so) in five rooms, ``arbiter/`` who
may use a contended GPU now, ``sim/`` the simulated GPU. The modules here are the host's side of the
contract. In come limits to enforce, out comes what containers use and hold. `limits` has one writer
at a time, by an OFD lock on the slice's file ``lock``; `usage` belongs to the container, and what
is read of it here is a bounded copy.
"""
