"""An agent in a root of its own writes the spec into the node's, through its first process."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from support import ROOT

# A container as far as it matters here: another root, /run of its own, the node's processes.
CONTAINER = """
mount -t proc proc /proc && mount -t tmpfs none "$ROOT" && cd "$ROOT" || exit 9
for each in /*; do
    case "$each" in /run|/var|/tmp|/sys) continue;; esac
    if [ -L "$each" ]; then cp -P "$each" .$each
    elif [ -d "$each" ]; then mkdir .$each && mount --rbind "$each" .$each || exit 9
    fi
done
mount -t tmpfs none dev/shm || exit 9  # as /tmp: the spec must not be seen there
mkdir -p run/cdi var tmp && ln -s /run var/run && mkdir -p ".$CHECKOUT"
exec chroot . "$PYTHON" -c "$PROGRAM"
"""
PROGRAM = """
import os
from deviceplugin.cdi.spec_files import SpecDirectory
from deviceplugin.cdi.trees import node_root
node = node_root("", os.environ)
assert node.is_seen and node.tree.seen == "/proc/1/root", node
assert SpecDirectory(node.tree, os.environ["CDI"], "a.b/gpu").write({"kind": "a.b/gpu"})
assert not os.path.exists(os.environ["CDI"]), "it went into the container's own root"
print(node.tree.at("/var/run/cdi"))
"""


@pytest.mark.root
@pytest.mark.skipif(str(ROOT).startswith("/tmp/"), reason="the checkout must be seen inside")
def test_a_container_with_the_nodes_processes_writes_on_the_node(tmp_path: Path) -> None:
    root, spec = tmp_path / "root", tmp_path / "cdi"
    root.mkdir()
    done = subprocess.run(
        ["unshare", "-p", "-f", "-m", "sh", "-c", f"sh -c '{CONTAINER}'; exit $?"],
        env={
            "PATH": os.environ["PATH"],
            "ROOT": str(root),
            "CDI": str(spec),
            "CHECKOUT": str(ROOT),
            "PYTHON": sys.executable,
            "PYTHONPATH": str(ROOT),
            "PROGRAM": PROGRAM,
            "KUBERNETES_SERVICE_HOST": "10.0.0.1",
        },
        capture_output=True,
        text=True,
        check=False,
    )
    if "Operation not permitted" in done.stderr or done.returncode == 9:
        pytest.skip(f"namespaces or mounts are not allowed here: {done.stderr.strip()}")

    assert done.returncode == 0, done.stderr
    assert (spec / "a.b-gpu.json").is_file()
    assert done.stdout.strip() == f"/proc/1/root{os.path.realpath('/var/run')}/cdi"
