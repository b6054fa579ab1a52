"""Generated stubs of the kubelet's protocols; `make protos` writes them."""
