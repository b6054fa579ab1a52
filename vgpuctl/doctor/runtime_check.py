"""Checks whether the node's container runtime brings GPUs into containers. Pure.

By the runtime's own files, so also while the agent is down; which form of answer the agent gives,
and what is wrong with its CDI spec, is the check `injection`.
"""

from collections.abc import Collection

from deviceplugin.cdi.strategy import CDI_LISTS, CONTAINERD, CRIO, RuntimeFacts

from .finding import Finding, fail, ok, warn

_CHECK = "runtime"
_UNSEEN_FIX = (
    "set hostPID: true and privileged: true for the agent's pod, as the chart does, or run vgpuctl "
    "doctor on the node itself"
)
_RANCHER = "/var/lib/rancher/"


def unseen() -> Finding:
    """Says that this container does not see the node's files."""
    return warn(
        _CHECK,
        "this container does not see the node's root, so the container runtime's config is unknown",
        _UNSEEN_FIX,
    )


def runtime(facts: RuntimeFacts, lists: Collection[str]) -> Finding:
    """Tells whether containers get a GPU from this runtime.

    Args:
        lists: values of ``deviceListStrategy`` in force; empty where they are not known, and then
            any way counts.
    """
    if not facts.name:
        return warn(
            _CHECK,
            "which container runtime this node has is not known: neither the kubelet's config nor "
            "a socket of containerd or CRI-O tells",
            "nothing if containers see their GPU; else name the node's root with --host-root",
        )
    by_cdi = not lists or bool(CDI_LISTS & set(lists))
    by_nvidia = not lists or bool(set(lists) - CDI_LISTS)
    where = f" ({facts.source})" if facts.source else ""
    if by_cdi and facts.does_cdi:
        return ok(_CHECK, f"{facts.label}{where} brings GPUs into containers by CDI")
    if by_nvidia and facts.default_handler in facts.nvidia_handlers:
        return ok(
            _CHECK,
            f"{facts.label}{where} brings GPUs into containers: its default runtime "
            f"{facts.default_handler} is NVIDIA's",
        )
    if by_nvidia and facts.nvidia_handlers:
        return warn(
            _CHECK,
            f"{facts.label}{where} has NVIDIA's runtime as {', '.join(facts.nvidia_handlers)} "
            f"only, and its default is {facts.default_handler or 'another'}: pods without a "
            "runtime class start without a GPU",
            f"give pods runtimeClassName: {facts.nvidia_handlers[0]}, or {_configure(facts)}",
        )
    if by_cdi and facts.does_cdi is None:
        return warn(
            _CHECK,
            f"{facts.label}{where} has no runtime of NVIDIA's, and whether it does CDI is not "
            "known, since its version is not",
            f"see containerd --version (2.0 and newer do CDI); if it is older, {_configure(facts)}",
        )
    lacks = "no runtime of NVIDIA's" if by_nvidia else "no CDI"
    if by_cdi and by_nvidia:
        lacks = "neither CDI nor a runtime of NVIDIA's"
    asked = f", and deviceListStrategy is {' and '.join(lists)}" if lists else ""
    return fail(
        _CHECK,
        f"{facts.label}{where} has {lacks}{asked}, so containers start without their GPU",
        _configure(facts),
    )


def _configure(facts: RuntimeFacts) -> str:
    """Returns what gives a runtime NVIDIA's."""
    if facts.source.startswith(_RANCHER):  # it writes its config by itself, at its start
        unit = "rke2-server or rke2-agent" if "/rke2/" in facts.source else "k3s or k3s-agent"
        return (
            "install nvidia-container-toolkit and restart "
            f"{unit}, which finds NVIDIA's runtime by itself; then set "
            "flags.plugin.deviceListStrategy: auto"
        )
    name = "crio" if facts.name == CRIO else "containerd"
    if facts.name not in (CONTAINERD, CRIO):
        return "use containerd or CRI-O, which the kubelet hands devices to by itself"
    return (
        f"install nvidia-container-toolkit and run: nvidia-ctk runtime configure --runtime={name} "
        f"--set-as-default && systemctl restart {name}"
    )
