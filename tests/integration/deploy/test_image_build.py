"""`make image` builds the same bytes anywhere, small and complete (long form; needs packages).

The second build is one of another checkout, by another user's habits.
"""

import gzip
import io
import json
import os
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from spdx_tools.spdx.parser.parse_anything import parse_file
from spdx_tools.spdx.validation.document_validator import validate_full_spdx_document

from deploy.image import locks
from deploy.image.building import ENTRYPOINT, OUTPUT, SBOM_PATH, Built, Order, build
from deploy.image.downloads import Unreachable
from support import ROOT
from support.cluster import agent_image

#: What builds the project needs packages that are not there, and the shim is no module.
IMPORT_ALL = """
import importlib, pkgutil
for name in ("libvgpu", "deviceplugin", "vgpuctl"):
    for module in pkgutil.walk_packages(importlib.import_module(name).__path__, name + "."):
        if module.name.rpartition(".")[2] not in ("__main__", "_setuptools", "libvgpu"):
            importlib.import_module(module.name)
"""
MOST_UNPACKED_BYTES = 150 * 10**6
BUILD_S = 900
#: What the chart's pods start, and what an administrator types in them.
PROGRAMS = ("python", "sh", "awk", "flock", "mount", "umount", "env", "cat", "ls", "vgpuctl")

pytestmark = [
    pytest.mark.long,
    pytest.mark.timeout(2 * BUILD_S),
]


@pytest.fixture(scope="module")
def built() -> Built:
    if why_not := agent_image.missing():
        pytest.skip(why_not)
    try:
        return build(Order())
    except Unreachable as error:
        pytest.skip(error.message)


def members(archive: Path) -> Iterator[tuple[tarfile.TarInfo, bytes]]:
    """Yields every entry of every layer with its content."""
    with tarfile.open(archive) as image:

        def read(name: str) -> bytes:
            file = image.extractfile(name)
            assert file is not None
            return file.read()

        (entry,) = json.loads(read("manifest.json"))
        for layer in entry["Layers"]:
            with tarfile.open(fileobj=io.BytesIO(gzip.decompress(read(layer)))) as tar:
                for member in tar:
                    content = tar.extractfile(member) if member.isreg() else None
                    yield member, content.read() if content else b""


def test_another_checkout_builds_the_same_bytes(built: Built, tmp_path: Path) -> None:
    listing = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard", "-z"],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if listing.returncode:
        pytest.skip("not a git checkout: what belongs to the source is not known")
    checkout = tmp_path / "another checkout"
    for name in filter(None, listing.stdout.split("\0")):
        if (ROOT / name).is_file():
            target = checkout / name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes((ROOT / name).read_bytes())
            target.chmod((ROOT / name).stat().st_mode & 0o700)
            os.utime(target, (1_000_000_000, 1_000_000_000))

    subprocess.run(
        [sys.executable, "-m", "deploy.image", "build", f"--cache={OUTPUT / 'cache'}"],
        cwd=checkout, check=True, timeout=BUILD_S, umask=0o077,
        env={**os.environ, "TZ": "Asia/Kathmandu", "LC_ALL": "C", "HOSTNAME": "another"},
    )  # fmt: skip

    other = checkout / "build/image"
    for path in (built.archive, built.sbom):
        assert (other / path.name).read_bytes() == path.read_bytes(), path.name


def test_it_is_small_and_has_what_the_chart_starts(built: Built) -> None:
    found = list(members(built.archive))

    names = {member.name for member, _ in found}
    assert sum(len(content) for _, content in found) == built.written.unpacked_bytes
    assert built.written.unpacked_bytes < MOST_UNPACKED_BYTES
    assert {f"usr/bin/{name}" for name in PROGRAMS[:-1]} | {"usr/local/bin/vgpuctl"} <= names
    assert not [name for name in names if name.endswith(".pyc") or "/__pycache__" in name]
    assert not [member.name for member, _ in found if member.mode & 0o6000]
    assert {(member.uid, member.gid) for member, _ in found} == {(0, 0)}


def test_nothing_in_it_names_the_machine_that_built_it(built: Built) -> None:
    ours = (str(ROOT).encode(), sys.prefix.encode(), os.path.expanduser("~").encode() + b"/.")

    naming = [
        (member.name, text)
        for member, content in members(built.archive)
        for text in ours
        if text in content
    ]

    assert naming == []


def test_its_list_of_contents_is_whole_and_in_it(built: Built) -> None:
    listing = built.sbom.read_bytes()
    inside = {member.name: content for member, content in members(built.archive)}

    document = parse_file(str(built.sbom))

    assert inside[SBOM_PATH] == listing
    assert validate_full_spdx_document(document) == []
    named = {(package.name, package.version) for package in document.packages}
    lock = locks.read_debian_lock()
    assert {(each.name, each.version) for each in lock.packages["amd64"]} <= named
    python = locks.read_python_lock(locks.python_lock("amd64"))
    lowered = {(name.lower().replace("_", "-"), version) for name, version in named}
    assert {(each.name.lower().replace("_", "-"), each.version) for each in python} <= lowered
    assert ("vgpu", "0.1.0") in named
    for each in lock.packages["amd64"]:
        comment = next(one.license_comment for one in document.packages if one.name == each.name)
        assert str(comment).rpartition(" /")[2] in inside, f"no licence of {each.name}"


@pytest.mark.root
@pytest.mark.parametrize(
    "command",
    [
        [*ENTRYPOINT, "--help"],
        ["python", "-m", "deviceplugin.mps", "--help"],
        ["python", "-m", "deviceplugin.scheduler", "--help"],
        ["python", "-m", "deviceplugin.webhook", "--help"],
        ["vgpuctl", "--version"],
        ["kubectl-vgpu", "--help"],
        ["flock", "/tmp/lock", "sh", "-euc", "awk 'END {exit !(NR > 0)}' /etc/passwd"],
        ["mount", "--version"],
        ["python", "-c", IMPORT_ALL],
    ],
    ids=lambda command: " ".join(command)[:60],
)
def test_its_programs_run(root_directory: Path, command: list[str]) -> None:
    done = subprocess.run(
        ["chroot", str(root_directory), "/usr/bin/env", "-i", "PATH=/usr/local/bin:/usr/bin",
         *command],
        capture_output=True, text=True, check=False,
    )  # fmt: skip

    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def root_directory(built: Built, tmp_path_factory: pytest.TempPathFactory) -> Path:
    if os.getuid() != 0:
        pytest.skip("chroot needs root")
    directory = tmp_path_factory.mktemp("root")
    for member, content in members(built.archive):
        target = directory / member.name
        if member.isdir():
            target.mkdir(exist_ok=True)
        elif member.issym():
            target.symlink_to(member.linkname)
        else:
            target.write_bytes(content)
        if not member.issym():
            target.chmod(member.mode)
    return directory


def test_all_but_the_project_is_built_for_arm64_too(tmp_path: Path) -> None:
    try:
        other = build(Order("arm64", output=tmp_path, cache=OUTPUT / "cache", with_project=False))
    except Unreachable as error:
        pytest.skip(error.message)

    programs = [member.name for member, content in members(other.archive)
                if content.startswith(b"\x7fELF")]  # fmt: skip
    assert "usr/bin/python3.11" in programs
    assert any("aarch64-linux-gnu/libc.so.6" in each for each in programs)
