"""What the kubelet remembers of us, and allocations made from it where our checkpoint lacks them.

In come the kubelet's own checkpoint file and the run directory; out come records and allocations.
Pure but for the reading of that file, which any thread may do.
"""
