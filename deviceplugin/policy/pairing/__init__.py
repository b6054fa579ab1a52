"""Which units a container gets: core and memory on one GPU, though the kubelet asks for each alone.

In come the layout, the book of allocations and what the kubelet lists; out come the units of one
container, on one GPU or on several whole ones, or an `AllocationRefused` with the numbers.
`preference` says which ones the kubelet had best take, `pairing` judges those that it gives.
"""
