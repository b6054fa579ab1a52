"""The init container that makes the run directory a tmpfs of the node, run as it stands.

A process with mounts and process ids of its own is the node; below it, another with mounts of its
own that are the node's peers is the container, as ``mountPropagation: Bidirectional`` has it.
"""

import os
import shlex
import shutil
import sys
from pathlib import Path

import pytest

from support import ROOT
from support.cluster import install
from support.ended import run_to_end

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(os.geteuid() != 0, reason="mounts need root"),
]
SLOW_S = 0.3
COUNT = 'grep -c " $RUN_DIR .* vgpu " /proc/1/mountinfo || true'


def init_container(base: Path) -> str:
    """A container with the manifest's command, its state directory below ``base``.

    Its run directory is bound to the node's, at the same path, on a mount that is not the node's.
    """
    sets = [o for o in install.manifests() if o["kind"] == "DaemonSet"]
    commands = [o["spec"]["template"]["spec"]["initContainers"][0]["command"] for o in sets]
    assert commands[0] == commands[1]
    command = shlex.join(commands[0])
    steps = [
        f"mount --rbind $RUN_DIR {base}/here",
        f"mount --make-rprivate {base}/run",
        f"umount -l {base}/run",
        "mkdir -p $RUN_DIR",
        f"mount --rbind {base}/here $RUN_DIR",
        command,
    ]
    return f"container {shlex.quote('; '.join(steps))}"


def put(program: Path, text: str) -> None:
    program.write_text(f"#!/bin/sh -eu\n{text}\n")
    program.chmod(0o755)


def on_a_node(base: Path, *steps: str) -> list[str]:
    """Runs steps on the node, with ``container COMMAND`` for one in a container; what they say."""
    (base / "state").mkdir()
    (base / "run").mkdir()
    (base / "here").mkdir()
    put(base / "container", 'exec unshare --mount --propagation unchanged sh -euc "$1" container')
    # Slow, so that two who look before either has mounted would both mount.
    slow = f"case $* in *tmpfs*) sleep {SLOW_S};; esac"
    put(base / "mount", f'{slow}; exec {shutil.which("mount")} "$@"')
    node = "\n".join(
        [
            "mount --make-rprivate /",
            f"mount -t tmpfs node {base}/run && mount --make-shared {base}/run",
            "mkdir $RUN_DIR",
            *steps,
        ]
    )
    result = run_to_end(
        ["unshare", "--mount", "--pid", "--fork", "--mount-proc", "sh", "-euc", node],
        env={
            "PATH": f"{base}:{Path(sys.executable).parent}:{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT),
            "STATE_DIR": f"{base}/state",
            "RUN_DIR": f"{base}/run/vgpu",
            "RUN_DIR_SIZE": "8M",
        },
    )
    if "unshare failed" in result.stderr:
        pytest.skip(f"no namespaces here: {result.stderr.strip()}")
    assert result.returncode == 0, result.stderr
    return result.stdout.split()


def test_it_is_mounted_on_the_node_once_whoever_comes_first(tmp_path: Path) -> None:
    start = init_container(tmp_path)
    both = f"{start} & {start} & wait"

    said = on_a_node(tmp_path, COUNT, both, COUNT, start, COUNT,
                     "stat -f -c %T $RUN_DIR; stat -c %a $RUN_DIR",
                     "df --output=size $RUN_DIR | tail -1")  # fmt: skip

    assert said == ["0", "1", "1", "tmpfs", "700", "8192"]


def test_one_that_holds_slices_stays_as_it_is(tmp_path: Path) -> None:
    """Running containers have their files: a mount on top would hide them from the agent."""
    said = on_a_node(
        tmp_path, "mkdir $RUN_DIR/allocations", init_container(tmp_path), COUNT, "ls $RUN_DIR"
    )

    assert said == ["0", "allocations"]


def test_users_of_the_node_cannot_take_its_lock(tmp_path: Path) -> None:
    """The kubelet makes the directory with mode 0755, and an earlier version its lock with 0644."""
    said = on_a_node(
        tmp_path,
        "umask 022; chmod 0755 $STATE_DIR; touch $STATE_DIR/run-dir.lock",
        init_container(tmp_path),
        "stat -c %a $STATE_DIR $STATE_DIR/run-dir.lock",
    )

    assert said == ["700", "600"]
