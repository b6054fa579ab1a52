"""Which device nodes open a MIG device: minors of its capabilities, as the driver lists them. Pure.

``/proc/driver/nvidia-caps/mig-minors`` has a line ``gpu<m>/gi<g>/access <minor>`` for each GPU
instance and ``gpu<m>/gi<g>/ci<c>/access <minor>`` for each compute instance in it, <m> being the
minor of the GPU's own node.
"""

import re

MIG_MINORS = "/proc/driver/nvidia-caps/mig-minors"
_LINE = re.compile(r"gpu(\d+)/gi(\d+)(?:/ci(\d+))?/access (\d+)")

#: Minor of a capability, by GPU, GPU instance and compute instance; None for the GPU instance's.
MigMinors = dict[tuple[int, int, int | None], int]


def parse_mig_minors(text: str) -> MigMinors:
    """Returns the minors that a text of the driver lists; lines of other kinds are left out."""
    found: MigMinors = {}
    for line in text.splitlines():
        match = _LINE.fullmatch(line.strip())
        if match is not None:
            gpu, instance, compute, minor = match.groups()
            key = int(gpu), int(instance), None if compute is None else int(compute)
            found[key] = int(minor)
    return found


def capability_nodes(
    minors: MigMinors, gpu_minor: int, gpu_instance: int, compute_instance: int
) -> tuple[str, str] | None:
    """Returns the nodes of a MIG device's two capabilities, None where the driver lists none."""
    instance = minors.get((gpu_minor, gpu_instance, None))
    compute = minors.get((gpu_minor, gpu_instance, compute_instance))
    if instance is None or compute is None:
        return None
    return f"/dev/nvidia-caps/nvidia-cap{instance}", f"/dev/nvidia-caps/nvidia-cap{compute}"
