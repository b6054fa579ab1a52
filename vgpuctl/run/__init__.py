"""`vgpuctl run` without its command line: a slice that no agent keeps, from the words to the end.

In come what was typed and the GPUs that are there; out come the slice's limits, the command in the
foreground and what it used. Runs of one run directory exclude each other by a lock on it while one
looks and writes (`core_sum.admitting`).
"""
