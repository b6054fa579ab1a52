"""One file per verb; `vgpuctl.cli` imports only the one that was typed."""
