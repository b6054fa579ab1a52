"""What all parts of a cluster have said, kept where a check has failed.

They are kept below build/e2e-logs in a folder for each cluster, and in it one for each failure.
Only the first few failures of a cluster are kept, since those after them mostly follow from them,
only the last clusters, and of each file only its end: so the folder stays below about 200 MiB.
"""

import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from support import ROOT
from support.cluster.parts import ClusterParts

FOLDER = ROOT / "build/e2e-logs"
MOST_CLUSTERS, MOST_FAILURES = 5, 3
MOST_BYTES = 1 << 20
#: Files that a part keeps about itself, below the node's /var.
_RECORDS = (
    "lib/vgpu/checkpoint.json",
    "lib/kubelet/device-plugins/kubelet_internal_checkpoint",
)
#: What the API server is asked for, by the file's name.
_ASKED = {
    "events.txt": ("events", "--all-namespaces", "--sort-by=.lastTimestamp", "--output=wide"),
    "pods.yaml": ("pods", "--all-namespaces", "--output=yaml"),
    "objects.txt": ("all", "--all-namespaces", "--output=wide"),
    "node.yaml": ("nodes,leases", "--all-namespaces", "--output=yaml"),
}


@contextmanager
def kept_on_failure(cluster: ClusterParts, name: str) -> Iterator[None]:
    """Keeps the logs where the block fails, and says so in the failure's message.

    Args:
        name: of the folder.
    """
    try:
        yield
    except (Exception, pytest.fail.Exception) as error:
        error.add_note(_told(cluster, name))
        raise


def _told(cluster: ClusterParts, name: str) -> str:
    of_cluster = FOLDER / f"{cluster.base.name}-{cluster.kubernetes.version}"
    if of_cluster.exists() and len(list(of_cluster.iterdir())) >= MOST_FAILURES:
        return f"logs of all parts: those of the first {MOST_FAILURES} failures, in {of_cluster}"
    folder = of_cluster / re.sub(r"[^\w.-]+", "-", name).strip("-")
    try:
        keep(cluster, folder)
    except Exception as error:  # the failure itself is what has to be told
        return f"logs of all parts cannot be kept in {folder}: {error!r}"
    return f"logs of all parts: {folder}"


def keep(cluster: ClusterParts, folder: Path) -> None:
    """Copies what the parts, the containers and the API server say into a folder."""
    folder.mkdir(parents=True)
    for log in cluster.base.glob("*.log"):
        _copy_end(log, folder / "parts" / log.name)
    # NAMESPACE_POD_UID/CONTAINER/NUMBER.log: agent, MPS runner, extender, and the tests' own pods.
    pods = cluster.base / "log/pods"
    for log in pods.glob("*/*/*.log"):
        _copy_end(log, folder / "pods" / log.relative_to(pods))
    for record in _RECORDS:
        if (cluster.base / record).exists():
            _copy_end(cluster.base / record, folder / "records" / Path(record).name)
    for name, what in _ASKED.items():
        asked = cluster.ask("get", *what, "--request-timeout=10s")
        (folder / name).write_text((asked["out"] + asked["err"])[-MOST_BYTES:])
    _remove_oldest()


def _copy_end(file: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    with open(file, "rb") as source:
        source.seek(max(0, os.fstat(source.fileno()).st_size - MOST_BYTES))
        target.write_bytes(source.read(MOST_BYTES))


def _remove_oldest() -> None:
    clusters = sorted(FOLDER.iterdir(), key=lambda folder: folder.stat().st_mtime)
    for folder in clusters[:-MOST_CLUSTERS]:
        shutil.rmtree(folder)
