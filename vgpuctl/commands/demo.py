"""`vgpuctl demo`: the whole chain on a simulated GPU, from pod manifests to enforced slices."""

from pathlib import Path

import click

from libvgpu.artifacts import PACKAGE

from ..examples import examples


@click.command(
    short_help="Admit pods on simulated GPUs, and check every claim.",
    epilog=examples("vgpuctl demo", "vgpuctl demo --seed 7"),
)
@click.option(
    "--examples",
    type=click.Path(path_type=Path, file_okay=False),
    default=PACKAGE.parent / "deploy" / "examples",
    help="Directory with config.yaml, client/client.py and the pods [default: the checkout's].",
)
@click.option("--seed", type=int, help="Repeats the kubelet's random choices.")
def demo(examples: Path, seed: int | None) -> int:
    """Admit the example pods against the real agent on simulated GPUs, and check every claim."""
    from vgpuctl.demo.scenario import run_demo

    return 0 if run_demo(examples, seed) else 1
