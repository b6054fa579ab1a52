"""Slices and programs under the shim, and what plays the host's part for them."""
