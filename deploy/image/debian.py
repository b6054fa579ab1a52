"""Unpacks packages of Debian into a tree, the wanted files only, without maintainer scripts."""

import io
import re
import subprocess
import tarfile
from collections.abc import Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final

from libvgpu.errors import VgpuError

from .locks import Contents
from .tree import Directory, Entry, File, Link, Tree, merged

#: Where scanners of images without dpkg look for what is installed.
STATUS_DIRECTORY: Final = "var/lib/dpkg/status.d"
#: What maintainer scripts would have made, and accounts by name: root, and the one that the chart's
#: pods without rights run as.
_OWN: Final[dict[str, Entry]] = {
    "etc/passwd": File(
        b"root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/nonexistent:/bin/sh\n"
    ),
    "etc/group": File(b"root:x:0:\nnogroup:x:65534:\n"),
    "etc/nsswitch.conf": File(b"passwd: files\ngroup: files\nhosts: files dns\n"),
    # Without this file, NVIDIA's tools may leave out the links to their libraries; an empty one is
    # no cache to the loader, which then looks into the usual directories.
    "etc/ld.so.cache": File(b""),
    "etc/mtab": Link("../proc/self/mounts"),
    "usr/bin/awk": Link("mawk"),
    "usr/bin/python": Link("python3.11"),
    "usr/bin/python3": Link("python3.11"),
    "var/run": Link("/run"),
    **{
        name: Directory()
        for name in ("dev", "proc", "run", "sys", "var/lib", "usr/lib", "usr/sbin")
    },
    **{name: Link(f"usr/{name}") for name in ("bin", "sbin", "lib", "lib64")},
    "usr/lib64": Directory(),
    "root": Directory(0o700),
    "tmp": Directory(0o1777),
}


def system_tree(debs: Mapping[str, Path], contents: Contents) -> Tree:
    """Returns what is there before anything of Python is installed.

    Args:
        debs: the packages' files by name.

    Raises:
        VgpuError: a package has nothing that one of its patterns matches, or two have the same
            file.
    """
    tree = Tree()
    tree.entries.update(_OWN)  # not `add`: the links that merge /usr are among them
    for name, deb in sorted(debs.items()):
        tree.update(_package_tree(name, deb, contents))
        tree.add(f"{STATUS_DIRECTORY}/{name}", File(_run("--field", deb)))
    return tree


def licences_of(tree: Tree, package: str) -> str:
    """Returns the names that a package's copyright file has for its licences, with commas.

    Empty where the file is not written for machines.
    """
    entry = tree.entries.get(copyright_path(tree, package))
    if not isinstance(entry, File):
        return ""
    text = entry.content.decode(errors="replace")
    if "copyright-format" not in text[:400]:
        return ""
    return ", ".join(sorted({name.strip() for name in re.findall(r"^License:(.+)$", text, re.M)}))


def copyright_path(tree: Tree, package: str) -> str:
    """Returns where a package's copyright file is; some have that of another one."""
    directory = tree.resolve(f"usr/share/doc/{package}")
    return tree.resolve(f"{directory}/copyright")


def _package_tree(name: str, deb: Path, contents: Contents) -> Tree:
    patterns = contents.packages[name]
    unused = set(patterns)
    always = (f"usr/share/doc/{name}", f"usr/share/doc/{name}/copyright")
    tree = Tree()
    with tarfile.open(fileobj=io.BytesIO(_run("--fsys-tarfile", deb))) as archive:
        for member in archive:
            path = merged(member.name)
            matching = {each for each in patterns if fnmatchcase(path, each)}
            wanted = matching and not any(fnmatchcase(path, each) for each in contents.leave_out)
            if member.isdir() or not (wanted or path in always):
                continue
            unused -= matching
            if member.issym():
                tree.add(path, Link(member.linkname))
            elif content := archive.extractfile(member):
                tree.add(path, File(content.read(), bool(member.mode & 0o100)))
    if unused:
        raise VgpuError(f"{deb.name} has no {sorted(unused)[0]!r}, which contents.yaml asks for")
    return tree


def _run(action: str, deb: Path, *more: str) -> bytes:
    try:
        done = subprocess.run(
            ["dpkg-deb", action, str(deb), *more],  # noqa: S607 - found on PATH, as apt is
            capture_output=True,
            check=False,
            timeout=120,
        )
    except FileNotFoundError:
        raise VgpuError("dpkg-deb is missing: the image is built on Debian or Ubuntu") from None
    if done.returncode:
        raise VgpuError(f"{deb} cannot be unpacked: {done.stderr.decode().strip()}")
    return done.stdout
