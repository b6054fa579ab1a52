"""The node agent: hands out slices of GPUs to the kubelet and keeps their limits."""
