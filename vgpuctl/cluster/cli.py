"""The group of the verbs of `kubectl vgpu`; each verb's module is imported when it is typed."""

import click

from ..cli import LazyGroup, common_options
from ..examples import examples

#: verb -> module and attribute of its click command, in the order of `--help`.
VERBS = {
    "ps": ("vgpuctl.cluster.commands.ps", "ps"),
    "top": ("vgpuctl.cluster.commands.top", "top"),
    "status": ("vgpuctl.cluster.commands.status", "status"),
    "describe": ("vgpuctl.cluster.commands.describe", "describe"),
    "set": ("vgpuctl.cluster.commands.set", "set_verb"),
    "doctor": ("vgpuctl.cluster.commands.doctor", "doctor"),
}


class _KubectlGroup(LazyGroup):
    verbs = VERBS


@click.group(
    cls=_KubectlGroup,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog=examples("kubectl vgpu ps", "kubectl vgpu top --pod team-a/train-0"),
)
@common_options
def kubectl_cli() -> None:
    """Slices of NVIDIA GPUs on the nodes of a cluster, read through the API server."""
