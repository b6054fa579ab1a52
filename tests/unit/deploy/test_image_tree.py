"""The file system in memory, the layers made of it, and the archive around them."""

import gzip
import hashlib
import json
import tarfile
from pathlib import Path
from typing import Any

import pytest

from deploy.image.building import full_name
from deploy.image.oci import Settings, Written, layer_tar, write_archive
from deploy.image.tree import Directory, File, Link, Tree, merged
from libvgpu.errors import VgpuError

EPOCH_S = 1_700_000_000
CONFIG = {"Entrypoint": ["python"], "Env": ["A=1"]}
SETTINGS = Settings("docker.io/library/x:1", "amd64", CONFIG, EPOCH_S, "2023-11-14T22:13:20Z")


def tree(*paths: str) -> Tree:
    made = Tree()
    for path in paths:
        made.add(path, File(path.encode(), path.startswith("usr/bin/")))
    return made


def layer(path: Path, made: Tree) -> list[tarfile.TarInfo]:
    path.write_bytes(layer_tar(made, EPOCH_S))
    with tarfile.open(path) as archive:
        return archive.getmembers()


@pytest.mark.parametrize(
    ("path", "where"),
    [
        ("./bin/dash", "usr/bin/dash"),
        ("/lib/x86_64-linux-gnu/libc.so.6", "usr/lib/x86_64-linux-gnu/libc.so.6"),
        ("lib64/ld.so", "usr/lib64/ld.so"),
        ("usr/bin/env", "usr/bin/env"),
        ("etc/../etc/passwd", "etc/passwd"),
        ("library/x", "library/x"),
    ],
)
def test_paths_are_those_of_a_merged_usr(path: str, where: str) -> None:
    assert merged(path) == where


def test_two_packages_may_share_a_file_only_if_it_is_the_same() -> None:
    made = tree("etc/a")
    made.add("etc/a", File(b"etc/a"))

    with pytest.raises(VgpuError, match="'etc/a'"):
        made.add("etc/a", File(b"another"))


def test_links_are_followed_and_rings_of_them_refused() -> None:
    made = tree("usr/lib/b.so.1")
    made.add("usr/lib/b.so", Link("b.so.1"))
    made.add("lib64/ld.so", Link("/lib/b.so"))
    made.add("one", Link("two"))
    made.add("two", Link("one"))

    assert made.resolve("lib64/ld.so") == "usr/lib/b.so.1"
    with pytest.raises(VgpuError, match="leads to itself"):
        made.resolve("one")


def test_a_layer_is_sorted_of_one_time_and_roots(tmp_path: Path) -> None:
    made = tree("usr/bin/z", "etc/a")
    made.add("tmp", Directory(0o1777))
    made.add("etc/link", Link("a"))

    members = layer(tmp_path / "layer.tar", made)

    names = [each.name for each in members]
    assert (
        names == sorted(names) == ["etc", "etc/a", "etc/link", "tmp", "usr", "usr/bin", "usr/bin/z"]
    )
    assert {(each.uid, each.gid, each.uname, each.gname, each.mtime) for each in members} == {
        (0, 0, "root", "root", EPOCH_S)
    }
    modes = {each.name: each.mode for each in members}
    assert (modes["etc/a"], modes["usr/bin/z"], modes["tmp"], modes["etc"]) == (
        0o644,
        0o755,
        0o1777,
        0o755,
    )


def test_a_layer_does_not_depend_on_the_order_of_its_making() -> None:
    names = [f"usr/lib/{n}" for n in range(20)]

    assert layer_tar(tree(*names), EPOCH_S) == layer_tar(tree(*reversed(names)), EPOCH_S)


@pytest.fixture
def archive(tmp_path: Path) -> tuple[Path, Written]:
    path = tmp_path / "image.oci.tar"
    layers = [("below", tree("usr/bin/a")), ("above", tree("etc/b"))]
    return path, write_archive(path, layers, SETTINGS)


def content_of(path: Path) -> dict[str, bytes]:
    with tarfile.open(path) as archive:
        found = {each.name: archive.extractfile(each) for each in archive}
        return {name: file.read() for name, file in found.items() if file}


def blob(files: dict[str, bytes], descriptor: dict[str, Any]) -> bytes:
    """Returns what a descriptor names, which must be what it says."""
    content = files["blobs/sha256/" + descriptor["digest"].removeprefix("sha256:")]
    assert descriptor["digest"] == "sha256:" + hashlib.sha256(content).hexdigest()
    assert descriptor["size"] == len(content)
    return content


def test_the_archive_is_an_oci_layout_whose_digests_hold(archive: tuple[Path, Written]) -> None:
    path, written = archive
    files = content_of(path)

    assert json.loads(files["oci-layout"]) == {"imageLayoutVersion": "1.0.0"}
    (entry,) = json.loads(files["index.json"])["manifests"]
    manifest = json.loads(blob(files, entry))
    config = json.loads(blob(files, manifest["config"]))
    layers = [gzip.decompress(blob(files, each)) for each in manifest["layers"]]

    assert entry["digest"] == f"sha256:{written.digest}"
    assert entry["annotations"]["io.containerd.image.name"] == SETTINGS.name
    assert (config["architecture"], config["os"]) == ("amd64", "linux")
    assert config["config"] == CONFIG
    assert config["rootfs"]["diff_ids"] == [
        "sha256:" + hashlib.sha256(each).hexdigest() for each in layers
    ]
    assert [each.removeprefix("sha256:") for each in config["rootfs"]["diff_ids"]] == [
        *written.diff_ids
    ]
    assert len(config["history"]) == len(layers) == 2
    assert written.archive_bytes == path.stat().st_size


def test_docker_finds_the_same_in_it(archive: tuple[Path, Written]) -> None:
    files = content_of(archive[0])

    (entry,) = json.loads(files["manifest.json"])

    (described,) = json.loads(files["index.json"])["manifests"]
    manifest = json.loads(blob(files, described))
    assert entry["RepoTags"] == ["x:1"]
    assert entry["Config"].endswith(manifest["config"]["digest"].removeprefix("sha256:"))
    assert [name.rpartition("/")[2] for name in entry["Layers"]] == [
        each["digest"].removeprefix("sha256:") for each in manifest["layers"]
    ]


@pytest.mark.parametrize(
    ("name", "full"),
    [
        ("vgpu", "docker.io/library/vgpu:0.1.0"),
        ("me/vgpu:2", "docker.io/me/vgpu:2"),
        ("registry.example:5000/vgpu", "registry.example:5000/vgpu:0.1.0"),
        ("localhost/vgpu", "localhost/vgpu:0.1.0"),
    ],
)
def test_a_short_name_is_completed_as_engines_do(name: str, full: str) -> None:
    assert full_name(name, "0.1.0") == full
