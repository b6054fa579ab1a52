"""What the node tells those who schedule pods: its GPUs, and what of them is taken.

In come the layout and the book of allocations; out comes the inventory of `pages.published`, cut
down to what a Lease can hold.
"""
