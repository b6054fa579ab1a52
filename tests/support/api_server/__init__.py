"""The simulated API server as tests use it."""
