"""Every file of the tree that a program makes, and what makes it: ``make fresh`` writes them all.

tests/contract/test_generated.py and, for the manifests, tests/e2e/test_install.py compare them with
what is there. What is measured or chosen has no place here: results of benchmarks, pictures of the
dashboards, and the image's locks (`make image-lock`).
"""

import hashlib
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from click.testing import CliRunner

from benchmarks.simulated_gpu import H100
from deploy.grafana import generate
from libvgpu.hook_table import COVERAGE, format_table, read_hook_table, with_table
from libvgpu.json_rows import to_rows
from libvgpu.sim import PROFILES
from libvgpu.sim.calibration import find_calibration
from libvgpu.sim.identity import initializer
from support import ROOT
from support.cluster import install
from vgpuctl.cli import cli
from vgpuctl.manual.__main__ import main as write_manuals
from vgpuctl.output.__main__ import main as write_schemas

#: Digests of the stubs and of all that they are made of, in the form of sha256sum.
DIGESTS = "made-of.sha256"


@dataclass(frozen=True)
class Generated:
    """Files that one program makes of one source.

    Attributes:
        folder: of the tree.
        patterns: how all of them, and no other file there, are called.
        source: what somebody changes instead of them.
        write: writes them into a folder.
        missing: says as a sentence why they cannot be made here; empty where they can.
    """

    folder: str
    patterns: tuple[str, ...]
    source: str
    write: Callable[[Path], object]
    missing: Callable[[], str] = lambda: ""

    @property
    def name(self) -> str:
        """The files, as a person names them."""
        return f"{self.folder}/{self.patterns[0]}"

    def shipped(self) -> dict[str, bytes]:
        """Returns the files of the tree."""
        return _contents(ROOT / self.folder, self.patterns)

    def made(self) -> dict[str, bytes]:
        """Returns the files as the program makes them now."""
        with tempfile.TemporaryDirectory() as scratch:
            self.write(Path(scratch))
            return _contents(Path(scratch), ("*",))

    def stale(self) -> list[str]:
        """Returns what to say of each file of the tree that is not what the program makes."""
        shipped, made = self.shipped(), self.made()
        return [
            f"{self.folder}/{name} is stale: run make fresh. Its source is {self.source}"
            for name in sorted(shipped | made)
            if shipped.get(name) != made.get(name)
        ]

    def freshen(self) -> None:
        """Puts what the program makes into the tree, and removes what it no longer makes."""
        made = self.made()
        for name in self.shipped().keys() - made:
            (ROOT / self.folder / name).unlink()
        for name, content in made.items():
            (ROOT / self.folder / name).write_bytes(content)


def _contents(folder: Path, patterns: Sequence[str]) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for pattern in patterns for path in folder.glob(pattern)}


def _write_coverage(folder: Path) -> None:
    page = with_table(COVERAGE.read_text(), format_table(read_hook_table()))
    (folder / COVERAGE.name).write_text(page)


def _write_config_schema(folder: Path) -> None:
    printed = CliRunner().invoke(cli, ["config", "schema"], catch_exceptions=False)
    (folder / "config.schema.json").write_text(to_rows(json.loads(printed.stdout)))


def _write_output_schemas(folder: Path) -> None:
    if write_schemas(folder, older=ROOT / "docs/schemas"):
        raise ValueError("the new schemas would break programs that read the old form")


def digests(stubs: Path) -> str:
    """Returns the digests of the stubs in a folder and of what they are made of."""
    source = ROOT / "deviceplugin/kubelet/protos"
    found = [*source.glob("*.proto"), source / "generate.sh", *stubs.glob("*_pb2*")]
    found.sort(key=lambda path: path.name)
    return "".join(
        f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in found
    )


def _write_stubs(folder: Path) -> None:
    """The generator is downloaded, so it runs only if something has changed since it last ran."""
    there = ROOT / "deviceplugin/kubelet/protos"
    if (there / DIGESTS).read_text() == digests(there):
        for path in there.glob("*_pb2*"):
            shutil.copy(path, folder)
    else:
        subprocess.run(["sh", str(there / "generate.sh"), "python3.11", str(folder)], check=True)
    (folder / DIGESTS).write_text(digests(folder))


def _write_simulated_gpu(folder: Path) -> None:
    profile = replace(PROFILES["h100-80g"], calibration=find_calibration("h100"))
    (folder / H100.name).write_text(initializer(profile))


def _write_manifests(folder: Path) -> None:
    (folder / install.MANIFESTS.name).write_text(install.render())


#: In this order, since the chart has the dashboards.
GENERATED = (
    Generated("docs", ("coverage.md",), "libvgpu/src/hooks/hooks.def", _write_coverage),
    Generated("docs/schemas", ("*.json",), "vgpuctl/output", _write_output_schemas),
    Generated("docs/man", ("*.1",), "the help of each verb in vgpuctl", write_manuals),
    Generated("deploy", ("config.schema.json",), "deviceplugin/config", _write_config_schema),
    Generated(
        "deploy/chart/files/dashboards", ("*.json",), "deploy/grafana/generate.py", generate.write
    ),
    Generated("deviceplugin/kubelet/protos", ("*_pb2*", DIGESTS), "the .proto files", _write_stubs),
    Generated("benchmarks/native", (H100.name,), "libvgpu/sim", _write_simulated_gpu),
    Generated("deploy/manifests", ("*.yaml",), "deploy/chart", _write_manifests, install.missing),
)


def main() -> int:
    """Freshens all files; returns the exit status.

    The chart's manifests need Go. Without it, they stay and a line says so.
    """
    for each in GENERATED:
        if why := each.missing():
            print(f"{each.name}: left as they are. {why}", file=sys.stderr)
            continue
        before = each.shipped()
        each.freshen()
        after = each.shipped()
        for name in sorted(before | after):
            if before.get(name) != after.get(name):
                print(f"{each.folder}/{name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
