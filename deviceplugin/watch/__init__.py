"""What the shim cannot see: memory and processes that only NVML on the host shows.

In come NVML's lists, `/proc` and the ledgers; out go unaccounted memory to charge, findings to
report, and, where the config says so, the end of a process. One thread (`watcher`) does it all.
"""
