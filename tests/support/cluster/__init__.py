"""Kubernetes: clusters of real parts, what is installed there, and what judges it."""
