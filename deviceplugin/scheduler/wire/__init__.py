"""The calls of kube-scheduler and Volcano as they come over HTTP, and which replica takes them."""
