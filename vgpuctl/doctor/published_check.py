"""Checks whether the agent can tell schedulers what its node has. Pure."""

from deviceplugin.pages.state import AgentReport

from .finding import Finding, warn


def published(report: AgentReport) -> list[Finding]:
    """Tells of an agent that cannot write its Lease."""
    if not report.publish_problem:
        return []
    return [
        warn(
            "published",
            f"the node's inventory is not published: {report.publish_problem}; schedulers use the "
            "previous one",
            "let the agent create and patch Leases of its namespace (agent.publish of the chart): "
            "kubectl auth can-i patch leases.coordination.k8s.io -n vgpu-system "
            "--as system:serviceaccount:vgpu-system:vgpu-agent; see also that it reaches the API "
            "server",
        )
    ]
