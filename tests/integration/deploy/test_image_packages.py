"""Packages on their way into the image: brought by hash, unpacked without scripts, linked whole."""

import hashlib
import os
import shutil
import subprocess
import threading
import zipfile
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from deploy.image import downloads
from deploy.image.debian import licences_of, system_tree
from deploy.image.linking import check_libraries
from deploy.image.locks import (
    Contents,
    DebianLock,
    DebianPackage,
    PythonPackage,
    read_python_lock,
)
from deploy.image.tree import Directory, File, Link, Tree
from deploy.image.wheels import PYTHON, SITE, install_wheel, metadata_of
from libvgpu.errors import VgpuError

needs_apt = pytest.mark.skipif(
    not downloads.APT_HELPER.exists(), reason="no apt, by which packages of Debian come"
)
needs_dpkg = pytest.mark.skipif(shutil.which("dpkg-deb") is None, reason="no dpkg-deb")
CONTENT = b"a package"
POOL = "debian/pool/main/d/dash/dash_1+b1~x_amd64.deb"


class Mirror:
    """An HTTP server of files.

    Attributes:
        asked: the paths, in order.
    """

    def __init__(self, directory: Path) -> None:
        self.asked = list[str]()
        mirror = self

        class Handler(SimpleHTTPRequestHandler):
            def log_request(self, code: object = "-", size: object = "-") -> None:
                mirror.asked.append(self.path)

            def log_message(self, format: str, *args: object) -> None:
                pass

        handler = partial(Handler, directory=str(directory))
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self.root = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))
        self._thread.start()

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@pytest.fixture
def mirror(tmp_path: Path) -> Iterator[Mirror]:
    file = tmp_path / "mirror" / POOL
    file.parent.mkdir(parents=True)
    file.write_bytes(CONTENT)
    made = Mirror(tmp_path / "mirror")
    yield made
    made.stop()


def lock_of(content: bytes, path: str = POOL) -> DebianLock:
    digest = hashlib.sha256(content).hexdigest()
    package = DebianPackage("dash", "1+b1~x", path, len(content), digest)
    return DebianLock("bookworm", "20260101T000000Z", {"amd64": [package]})


@needs_apt
def test_a_package_is_brought_once(mirror: Mirror, tmp_path: Path) -> None:
    cache = tmp_path / "cache"

    found = [
        downloads.bring_debian(lock_of(CONTENT), "amd64", cache, mirror.root) for _ in range(2)
    ]

    assert found[0] == found[1]
    assert found[0]["dash"].read_bytes() == CONTENT
    assert len(mirror.asked) == 1
    assert [path.name for path in cache.iterdir()] == [found[0]["dash"].name]


@needs_apt
def test_a_package_with_another_hash_is_refused_and_not_kept(
    mirror: Mirror, tmp_path: Path
) -> None:
    cache = tmp_path / "cache"

    with pytest.raises(VgpuError, match=r"gave another debian/pool.*its SHA-256 is") as refused:
        downloads.bring_debian(lock_of(b"another one"), "amd64", cache, mirror.root)

    assert not isinstance(refused.value, downloads.Unreachable)  # which tests are skipped for
    assert list(cache.iterdir()) == []


@needs_apt
def test_a_package_that_no_mirror_has_is_named(mirror: Mirror, tmp_path: Path) -> None:
    gone = "debian/pool/main/d/dash/dash_0_amd64.deb"

    with pytest.raises(downloads.Unreachable, match=r"1 packages.*dash_0_amd64\.deb.*404"):
        downloads.bring_debian(lock_of(CONTENT, gone), "amd64", tmp_path / "cache", mirror.root)


@needs_apt
def test_what_one_place_lacks_the_next_one_gives(
    mirror: Mirror, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last one is the archive of former packages, which has the lock's moment in its paths."""
    archived = tmp_path / "mirror/archive/debian/20260101T000000Z/pool/main/d/dash/dash_0_amd64.deb"
    archived.parent.mkdir(parents=True)
    archived.write_bytes(CONTENT)
    monkeypatch.setattr(downloads, "_apt_roots", list)
    monkeypatch.setattr(downloads, "MIRROR", mirror.root)
    monkeypatch.setattr(downloads, "SNAPSHOT", f"{mirror.root}/archive")
    gone = "debian/pool/main/d/dash/dash_0_amd64.deb"

    found = downloads.bring_debian(lock_of(CONTENT, gone), "amd64", tmp_path / "cache")

    assert found["dash"].read_bytes() == CONTENT
    assert [path.split("/")[1] for path in mirror.asked] == ["debian", "archive"]


@pytest.fixture
def deb(tmp_path: Path) -> Path:
    """A package with a set-user-id program, a library, files that nobody wants, and a script."""
    root = tmp_path / "package"
    files = {
        "DEBIAN/control": "Package: one\nVersion: 1\nArchitecture: amd64\nMaintainer: me\n"
        "Description: a package\n",
        "DEBIAN/postinst": f"#!/bin/sh\ntouch {tmp_path}/ran\n",
        "bin/mount": "a program",
        "usr/lib/one/keep.py": "kept",
        "usr/lib/one/tests/no.py": "left out",
        "usr/share/doc/one/copyright": "Format: https://www.debian.org/doc/packaging-manuals/"
        "copyright-format/1.0/\n\nLicense: GPL-2+\nLicense: BSD-3-clause\n",
        "usr/share/doc/one/changelog": "not wanted",
    }
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (root / "bin/mount").chmod(0o4755)
    (root / "DEBIAN/postinst").chmod(0o755)
    (root / "usr/lib/one/link.so").symlink_to("keep.py")
    (root / "usr/lib/one/twin.py").hardlink_to(root / "usr/lib/one/keep.py")
    target = tmp_path / "one.deb"
    subprocess.run(
        ["dpkg-deb", "--root-owner-group", "--build", str(root), str(target)],
        check=True,
        capture_output=True,
    )
    return target


@needs_dpkg
def test_the_wanted_files_of_a_package_come_in_and_no_script_runs(
    deb: Path, tmp_path: Path
) -> None:
    contents = Contents({"one": ["usr/bin/mount", "usr/lib/one/*"]}, ["*/tests/*"])

    tree = system_tree({"one": deb}, contents)

    assert tree.entries["usr/bin/mount"] == File(b"a program", is_executable=True)
    assert tree.entries["usr/lib/one/link.so"] == Link("keep.py")
    assert tree.entries["usr/lib/one/keep.py"] == File(b"kept")
    assert tree.entries["usr/lib/one/twin.py"] == File(b"kept")
    assert not [path for path in tree.entries if "tests" in path or "changelog" in path]
    assert licences_of(tree, "one") == "BSD-3-clause, GPL-2+"
    assert b"Package: one" in next(
        file.content for path, file in tree.files() if path.endswith("status.d/one")
    )
    assert (tree.entries["bin"], tree.entries["tmp"]) == (Link("usr/bin"), Directory(0o1777))
    assert not (tmp_path / "ran").exists()


@needs_dpkg
def test_a_pattern_that_no_file_matches_is_refused(deb: Path) -> None:
    with pytest.raises(VgpuError, match=r"one\.deb has no 'usr/bin/gone'"):
        system_tree({"one": deb}, Contents({"one": ["usr/bin/gone"]}, []))


@pytest.fixture
def wheel(tmp_path: Path) -> Path:
    """One with a script, an entry point, data and tests."""
    wheel = tmp_path / "wheels/one-1-py3-none-any.whl"
    wheel.parent.mkdir()
    with zipfile.ZipFile(wheel, "w") as archive:
        for name, text in {
            "one/__init__.py": "pass\n",
            "one/tests/test_it.py": "pass\n",
            "one-1.data/scripts/tool": "#!python\npass\n",
            "one-1.data/data/share/man/man1/one.1": "words",
            "one-1.dist-info/METADATA": "Metadata-Version: 2.1\nName: one\nVersion: 1\n",
            "one-1.dist-info/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\n",
            "one-1.dist-info/entry_points.txt": "[console_scripts]\none = one:main\n",
            "one-1.dist-info/RECORD": "".join(
                f"{each},,\n"
                for each in (
                    "one/__init__.py",
                    "one/tests/test_it.py",
                    "one-1.data/scripts/tool",
                    "one-1.data/data/share/man/man1/one.1",
                    "one-1.dist-info/METADATA",
                    "one-1.dist-info/WHEEL",
                    "one-1.dist-info/entry_points.txt",
                    "one-1.dist-info/RECORD",
                )
            ),
        }.items():
            archive.writestr(name, text)
    return wheel


def test_a_wheel_is_installed_for_the_images_python(wheel: Path) -> None:
    tree = Tree()

    install_wheel(tree, wheel, [f"{SITE}/*/tests/*"])

    files = dict(tree.files())
    assert files[f"{SITE}/one/__init__.py"] == File(b"pass\n")
    assert files["usr/local/share/man/man1/one.1"].content == b"words"
    for script in ("one", "tool"):
        assert files[f"usr/local/bin/{script}"].is_executable
        assert files[f"usr/local/bin/{script}"].content.startswith(f"#!{PYTHON}\n".encode())
    assert not [path for path in files if "tests" in path or path.endswith(".pyc")]
    record = files[f"{SITE}/one-1.dist-info/RECORD"].content.decode()
    listed = {line.partition(",")[0] for line in record.splitlines()}
    assert {"../../../bin/one", "../../../share/man/man1/one.1", "one/__init__.py"} <= listed
    assert "one/tests/test_it.py" not in listed
    assert metadata_of(wheel)["Version"] == "1"


def locked_wheel(directory: Path, digest: str) -> tuple[Path, list[PythonPackage]]:
    """Returns a lock of one package of Python with a hash, and what it has."""
    lock = directory / "python.lock"
    lock.write_text(f"one==1 --hash=sha256:{digest}\n")
    return lock, read_python_lock(lock)


def test_a_wheel_is_brought_once(
    wheel: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(wheel.parent))
    content = wheel.read_bytes()
    lock, packages = locked_wheel(tmp_path, hashlib.sha256(content).hexdigest())

    (first,) = downloads.bring_python(packages, lock, "arm64", tmp_path / "cache")
    wheel.unlink()
    (second,) = downloads.bring_python(packages, lock, "arm64", tmp_path / "cache")

    assert first == second
    assert first.read_bytes() == content
    with pytest.raises(downloads.Unreachable, match="packages of Python are not to be had"):
        downloads.bring_python(packages, lock, "arm64", tmp_path / "another cache")


def test_a_wheel_with_another_hash_is_refused(
    wheel: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(wheel.parent))
    lock, packages = locked_wheel(tmp_path, "0" * 64)

    with pytest.raises(VgpuError, match=r"not the one that .*python\.lock names") as refused:
        downloads.bring_python(packages, lock, "amd64", tmp_path / "cache")

    assert not isinstance(refused.value, downloads.Unreachable)
    assert list((tmp_path / "cache").iterdir()) == []


@pytest.fixture
def tree_with_library(library: Path) -> Tree:
    tree = Tree()
    tree.add("opt/one/main.so", File(library.read_bytes()))
    tree.add(f"usr/lib/{os.uname().machine}-linux-gnu/libc.so.6", File(b"a library"))
    return tree


def test_a_library_that_nothing_has_is_named(tree_with_library: Tree) -> None:
    with pytest.raises(VgpuError, match=r"/opt/one/main\.so needs libown\.so"):
        check_libraries(tree_with_library, os.uname().machine)
    tree_with_library.add("opt/one/libs/libown.so", File(b"a library"))

    assert check_libraries(tree_with_library, os.uname().machine) == 1


def test_a_file_for_another_architecture_is_refused(tree_with_library: Tree) -> None:
    with pytest.raises(VgpuError, match=r"main\.so is for x64, in an image for aarch64"):
        check_libraries(tree_with_library, "aarch64")


@pytest.fixture
def library(tmp_path: Path) -> Path:
    """A library that needs another one next to it, in ``libs``."""
    (tmp_path / "own.c").write_text("int own(void) { return 1; }\n")
    (tmp_path / "main.c").write_text("int own(void); int call(void) { return own(); }\n")
    shared = ["cc", "-shared", "-fPIC", "-o"]
    for command in (
        [*shared, "libown.so", "own.c", "-Wl,-soname,libown.so"],
        [*shared, "main.so", "main.c", "-L.", "-lown", "-Wl,-rpath,$ORIGIN/libs"],
    ):
        subprocess.run(command, cwd=tmp_path, check=True)
    return tmp_path / "main.so"
