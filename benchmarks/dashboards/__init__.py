"""Pictures of the dashboards without Grafana: ``python -m benchmarks.dashboards DIRECTORY``.

In go the dashboards and rules of the chart; out come pictures of what a real Prometheus answers to
their queries, while it scrapes real agents and a real extender. GPUs, kubelets, scheduler and API
server are simulated. Tests share the Prometheus and ask it what the pictures do.
"""
