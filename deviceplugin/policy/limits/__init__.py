"""What a container may use: from its units, the config's rules and `vgpuctl set` to its limits.

In come an allocation, the rules and what is learnt of contexts; out come `ContainerLimits`, where
each value comes from, and what a change means for the processes that run.
"""
