"""``python -m deploy.image``: ``build`` an image, or renew the ``lock`` files of its packages."""

import sys
import time
from pathlib import Path

import click

from libvgpu.errors import VgpuError

from .building import OUTPUT, Order, build
from .downloads import MIRROR
from .renewing import renew

_MIB = 1 << 20


@click.group(help="The container image, made without a container engine.")
def main() -> None:
    pass


@main.command("build")
@click.option("--arch", default="amd64", show_default=True, help="amd64 or arm64.")
@click.option("--name", default="vgpu", show_default=True, help="[REGISTRY/]NAME[:TAG]")
@click.option("--output", type=click.Path(path_type=Path), default=OUTPUT, help="A directory.")
@click.option("--cache", type=click.Path(path_type=Path), help="Of downloaded packages.")
@click.option("--mirror", help=f"Of Debian, for example {MIRROR}")
@click.option("--without-project", is_flag=True, help="Only what the project runs on.")
def build_command(
    arch: str,
    name: str,
    output: Path,
    cache: Path | None,
    mirror: str | None,
    without_project: bool,
) -> None:
    """Write the image and its SBOM; print their paths, sizes and digests."""
    began_s = time.monotonic()
    order = Order(arch, name, output, cache or output / "cache", mirror, not without_project)
    built = build(order)
    size = built.written
    print(
        f"{built.archive}: {size.unpacked_bytes / _MIB:.1f} MiB unpacked, "
        f"{size.archive_bytes / _MIB:.1f} MiB compressed, in {time.monotonic() - began_s:.0f} s"
    )
    print(f"digest sha256:{size.digest}")
    for each in size.diff_ids:
        print(f"layer  sha256:{each} (uncompressed)")
    print(built.sbom)


@main.command("lock")
@click.option("--mirror", default=MIRROR, show_default=True, help="Of Debian.")
def lock_command(mirror: str) -> None:
    """Find the newest packages and write the lock files."""
    renew(mirror)


if __name__ == "__main__":
    try:
        main()
    except VgpuError as error:
        hint = f"\nhint: {error.hint}" if error.hint else ""
        sys.exit(f"deploy.image: {error.message}{hint}")
