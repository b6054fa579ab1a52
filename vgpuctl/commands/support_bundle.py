"""`vgpuctl support-bundle`: one file for who is to find out what is wrong with a node.

It works while the agent is down and as an ordinary user; what it lacks then is said on stderr and
in its README.txt. Exit status: 0 where there is a file, also where it lacks something.
"""

import time
from pathlib import Path

import click

from ..examples import examples
from ..options import node_dirs_options


@click.command(
    "support-bundle",
    epilog=examples(
        "vgpuctl support-bundle node-7.tar.gz",
        "vgpuctl support-bundle --anonymise --force /tmp/node.tar.gz",
    ),
)
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--anonymise", is_flag=True, help="Replace names of tenants and node by hashes.")
@click.option("--force", is_flag=True, help="Replace FILE where it is there already.")
@node_dirs_options
def support_bundle(
    file: Path,
    anonymise: bool,
    force: bool,
    run_dir: Path | None,
    state_dir: Path,
    kubelet_dir: Path,
) -> None:
    """Pack what is known of this node into FILE, a .tar.gz.

    Config, states, events, metrics, doctor's findings and versions, without secrets and without
    data of tenants but names.
    """
    from ..bundle.archive import check_place, write_archive
    from ..bundle.parts import Sources, as_text, collect, moment
    from ..bundle.readme import readme
    from ..doctor.examine import node_run_dir
    from ..progress import Progress

    check_place(file, force)
    now_s = time.time()
    chosen = node_run_dir(run_dir, kubelet_dir)
    with Progress() as progress:
        found = collect(Sources(run_dir, chosen, kubelet_dir, state_dir), anonymise, progress)
    made = moment(now_s)
    there = ["README.txt", *found.values, *found.texts]
    page = readme(there, found.left_out, made, anonymise)
    files = as_text(found, page)
    write_archive(file, f"vgpu-support-{made}", files, now_s, force)
    for name, why in found.left_out.items():
        click.echo(f"vgpuctl: left out {name}: {why}", err=True)
    click.echo(
        f"vgpuctl: {file} has {len(files)} files; look through it before you send it", err=True
    )
