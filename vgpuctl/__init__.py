"""vgpuctl: the command line of fractional GPUs, on a node or on a laptop without one."""
