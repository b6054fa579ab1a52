"""The agent's image as `make image` builds it, for tests with real parts of Kubernetes."""

import hashlib
import importlib.util
import json
import os
import sys
from functools import cache
from importlib.metadata import version
from pathlib import Path

import pytest

from deploy.image import project
from deploy.image.building import OUTPUT, Order, build
from deploy.image.downloads import Unreachable
from support import ROOT


def missing() -> str:
    """Returns as a sentence what keeps the image from being built here, empty if nothing does."""
    if importlib.util.find_spec("ziglang") is None:
        return "no ziglang, which compiles what is in the image: make image installs it"
    return ""


@cache
def built() -> Path:
    """Returns the archive, of this checkout; the test is skipped where packages are not to be had.

    What was built of the same files is taken as it is.

    Raises:
        VgpuError: it does not build.
    """
    order = Order()
    # Nothing else that is built there has this time.
    note, made_of = order.output / "made-of.json", _digest()
    known = json.loads(note.read_text()) if note.exists() else {}
    if known.get("made_of") == made_of:
        archive = Path(known["archive"])
        if archive.exists() and archive.stat().st_mtime_ns == known["written_ns"]:
            return archive
    try:
        archive = build(order).archive
    except Unreachable as error:
        pytest.skip(error.message)
    written_ns = archive.stat().st_mtime_ns
    told = {"made_of": made_of, "archive": str(archive), "written_ns": written_ns}
    note.write_text(json.dumps(told))
    return archive


def _digest() -> str:
    """Returns what tells the files that an image is made of from others."""
    given = (sys.version, version("ziglang"), os.environ.get("SOURCE_DATE_EPOCH"))
    digest = hashlib.sha256(repr(given).encode())
    own = (path.relative_to(ROOT) for path in (ROOT / "deploy/image").iterdir() if path.is_file())
    for path in sorted((*project.sources(), *own)):
        file = ROOT / path
        digest.update(f"\n{path} {file.stat().st_mode:o}\n".encode() + file.read_bytes())
    return digest.hexdigest()


def simulated_driver() -> Path:
    """Returns the directory of the simulated driver's libraries that `built` has compiled.

    Unlike those of this machine's compiler they load in the image, whose glibc may be an older one.
    """
    # One for each Python that built here; they are of the same sources.
    return max((OUTPUT / "source/build").glob("lib*/libvgpu/sim/lib"))
