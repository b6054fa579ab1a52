"""Whether a pod fits a node, where and how well, and who would have to go for it: values, pure."""
