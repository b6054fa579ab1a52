"""The program that cleans a node, run as the chart's pod runs it, in mounts of its own.

A process with mounts and process ids of its own is the node, as in `test_run_dir`.
"""

import os
import shlex
import sys
from pathlib import Path

import pytest

from support import ROOT
from support.ended import run_to_end

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(os.geteuid() != 0, reason="mounts need root"),
]
#: In the container the node's directories are not seen: the program has to go where they are.
CLEAN = (
    "unshare --mount sh -euc 'umount -l {base}/run; {python} -m deviceplugin.cleaning host "
    "--run-dir={base}/run/vgpu --state-dir={base}/state/vgpu --message-file={base}/said'"
)
STARTED = "until test -e {base}/started; do sleep 0.05; done"


def on_a_node(base: Path, *steps: str) -> tuple[int, str]:
    """Runs steps on a node and cleans it; returns the program's status and what it said."""
    for name in ("run", "state/vgpu/shim/build"):
        (base / name).mkdir(parents=True)
    (base / "state/vgpu/shim/build/libvgpu.so").touch()
    node = "\n".join(
        [
            "mount --make-rprivate /",
            "mount -t tmpfs node {base}/run",
            "mkdir {base}/run/vgpu",
            "mount -t tmpfs vgpu {base}/run/vgpu",
            "mkdir -p {base}/run/vgpu/allocations/0a",
            "touch {base}/run/vgpu/allocations/0a/limits",
            *steps,
            f"{CLEAN} || status=$?",
            # Below, so that the test sees what is left of the tmpfs.
            "ls {base}/run/vgpu > {base}/left 2>&1 || true",
            "exit ${{status:-0}}",
        ]
    ).format(base=base, python=shlex.quote(sys.executable))
    options = ("--mount", "--pid", "--fork", "--mount-proc", "--kill-child")
    result = run_to_end(["unshare", *options, "sh", "-euc", node], cwd=ROOT)
    if "unshare failed" in result.stderr:
        pytest.skip(f"no namespaces here: {result.stderr.strip()}")
    said = base / "said"
    assert said.exists(), result.stderr
    return result.returncode, said.read_text()


def test_a_node_without_slices_is_as_before_the_install(tmp_path: Path) -> None:
    status, said = on_a_node(tmp_path)

    assert (status, said) == (0, f"{tmp_path}/run/vgpu {tmp_path}/state/vgpu")
    assert not (tmp_path / "state/vgpu").exists()
    assert "No such file" in (tmp_path / "left").read_text()


@pytest.mark.parametrize(
    "file", ["run/vgpu/allocations/0a/limits", "state/vgpu/shim/build/libvgpu.so"]
)
def test_a_container_with_a_file_of_a_slice_keeps_the_node_as_it_is(
    tmp_path: Path, file: str
) -> None:
    inside = "mount --bind {base}/" + file + " /etc/hosts; touch {base}/started; exec sleep 1000"
    container = f"unshare --mount sh -euc '{inside}' &"
    status, said = on_a_node(tmp_path, container, STARTED)

    assert status == 1
    assert "(sleep) has a slice, mounted at /etc/hosts" in said
    assert (tmp_path / "state/vgpu/shim/build/libvgpu.so").exists()
    assert (tmp_path / "left").read_text() == "allocations\n"
