"""Checks how containers of the node get their GPUs. Pure."""

from deviceplugin.pages.state import ReportedInjection

from .finding import Finding, fail, ok, warn

_CHECK = "injection"


def injection(told: ReportedInjection) -> list[Finding]:
    """Tells which forms are in force and why, and what keeps containers from their GPUs."""
    if not told.lists:
        return []  # an agent of before
    spec = f", CDI spec {told.spec}" if told.spec else ""
    says = f"{' and '.join(told.lists)}{spec}: {told.because}"
    found = [
        fail(_CHECK, problem, "see deviceListStrategy in docs/configuration.md")
        for problem in told.problems
    ]
    if told.needs_class:
        fix = f"give pods that ask for GPUs runtimeClassName: {told.needs_class[0]}"
        return [*found, warn(_CHECK, says, fix)]
    return found or [ok(_CHECK, says)]
