"""Programs on simulated machines, without the shim."""
