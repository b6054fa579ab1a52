"""vgpuctl: the command line of fractional GPUs, on a node or on a laptop without one.

In come words of a person, out go listings on stdout and sentences on stderr. What a verb reads are
the slices' own files and the agent's control socket; what it changes goes through the agent, or,
for `vgpuctl run`, through the slice's files under the lock of `core_sum`.
"""
