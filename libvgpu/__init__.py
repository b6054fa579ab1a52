"""The shim, the files it shares with the host, and the simulated GPU. Knows no Kubernetes."""
