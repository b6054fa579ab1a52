"""A simulated cluster: an API server, nodes and a scheduler, for measurements and tests.

Everything here is simulated and says so where its figures are shown. `api_server` answers over TLS
as a Kubernetes API server does, for the kinds in `kinds`.
"""
