"""Who lives is seen where slices and simulated machines lie on overlayfs, as in a container.

A mapped page does not keep a file's locks there (`libvgpu/src/slice/life.h`). Tests that hold
anywhere run once more, with their files on such a mount.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from support import ROOT
from support.suite.on_build import OTHERS, TESTS_SECONDS

LIFE = "tests/native/slice/test_process_life.py"
SHARING = "test_sharing.py::test_{}_killed"
RUNS = "tests/integration/vgpuctl/test_run_slices.py"
TESTS = (
    LIFE,
    "tests/integration/libvgpu/memory/"
    + SHARING.format("it_passes_to_the_importer_when_the_exporter_is"),
    "tests/native/sim/" + SHARING.format("bytes_live_on_when_their_exporter_is"),
    f"{RUNS}::test_runs_side_by_side_are_seen_though_they_close_all_descriptors",
)
#: The others look for locks on the slice's own file, or for the driver's files by their names, of
#: which the simulated GPU has none there.
ANYWHERE = "not claim and not close-gpu and not keeps_the_memory"
MOUNT = """
mount -t tmpfs none "$1" && cd "$1" && mkdir lower upper work merged &&
mount -t overlay none -o lowerdir=lower,upperdir=upper,workdir=work merged || exit 77
shift && cd "$1" && shift && exec "$@"
"""
NO_OVERLAY = 77


@pytest.mark.root
def test_processes_live_on_overlayfs(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can mount")
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", MOUNT, "sh", str(tmp_path), str(ROOT),
         sys.executable, "-m", "pytest", "-qx", "-p", "no:cacheprovider", "-m", OTHERS,
         "-k", ANYWHERE, f"--basetemp={tmp_path}/merged/run", *TESTS],
        capture_output=True, text=True, timeout=TESTS_SECONDS, check=False,
        env=os.environ | {"VGPU_LONG": "0"},
    )  # fmt: skip
    if done.returncode == NO_OVERLAY or "unshare failed" in done.stderr:
        pytest.skip(f"no overlay can be mounted here: {done.stderr.strip()}")

    assert done.returncode == 0, done.stdout + done.stderr
    assert " passed" in done.stdout
