"""What each section of a config yields, in a phrase; `commands.config` prints it."""

from collections.abc import Iterator

from deviceplugin.model.agent_config import AgentConfig
from deviceplugin.model.fractional import FractionalEntry
from deviceplugin.model.whole_devices import MIG_PREFIX, Replicas
from libvgpu.counting import counted
from libvgpu.sizes import format_size


def yields(config: AgentConfig) -> Iterator[tuple[str, str]]:
    """Yields section and phrase; a section that says nothing is left out."""
    domain = config.resource_domain
    for shared in config.fractional:
        yield shared.path[2:], _fractions(shared, domain)
    for replicas in config.whole.replicas:
        yield replicas.path[2:], _replicas(replicas, domain)
    for section, entries, noun in (
        ("limits", config.rules, "rule"),
        ("quotas", config.quotas, "quota"),
        ("mig", config.mig_layouts, "layout"),
    ):
        if entries:
            yield section, counted(len(entries), noun)
    if not config.fractional and not config.whole.replicas:
        yield "sharing", "none: each GPU is given whole"


def _fractions(entry: FractionalEntry, domain: str) -> str:
    family = entry.family.name.lower()
    unit = format_size(entry.memory_unit_bytes)
    which = "all GPUs" if entry.devices is None else f"GPU {', '.join(map(str, entry.devices))}"
    if not entry.match.is_open:
        which += " that match"
    return f"{domain}/{family}-core by 1 %, {domain}/{family}-memory by {unit}, of {which}"


def _replicas(entry: Replicas, domain: str) -> str:
    what = "MIG device" if entry.resource.startswith(MIG_PREFIX) else "GPU"
    which = ""
    if isinstance(entry.devices, int):
        which = f", of the first {entry.devices}"
    elif entry.devices is not None:
        which = f", of {', '.join(entry.devices)}"
    return f"{entry.replicas} {domain}/{entry.advertised} a {what}{which}"
