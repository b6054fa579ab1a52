"""Generated stubs of the kubelet's protocols; `make fresh` writes them."""
