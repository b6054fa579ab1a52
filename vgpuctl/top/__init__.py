"""`vgpuctl top`: the slices of a node, drawn again and again.

What the files say comes in (`observe`), `rates` makes of two looks what happened between them,
`frame` the lines of a screen, and `screen` shows them and reads keys. One thread.
"""
