"""What the kubelet's checkpoint has to say before a container starts without podresources."""

from dataclasses import replace

import pytest

from deviceplugin.recovery.confirmation import unconfirmed, unconfirmed_devices
from deviceplugin.recovery.kubelet_checkpoint import CheckpointReading, KubeletEntry

UNITS = ("GPU-0::c0", "GPU-0::c1")
MOUNTS = {"/run/vgpu/limits": "/run/vgpu/allocations/x1/limits"}
MINE = KubeletEntry("pod-1", "main", "nvidia.com/vgpu-core", UNITS, MOUNTS)
OTHER = replace(MINE, pod_uid="pod-2", container="app", units=UNITS[1:], mounts={})


def doubt(*entries: KubeletEntry, **reading: object) -> str | None:
    said = CheckpointReading(entries, **reading)  # type: ignore[arg-type]
    return unconfirmed(said, "x1", frozenset(UNITS))


@pytest.mark.parametrize("pods", [None, frozenset({"pod-1"})])
def test_units_that_one_pod_has_are_its_containers(pods: frozenset[str] | None) -> None:
    assert doubt(MINE, pods=pods) is None
    # An init container of the same pod passes its units on.
    assert doubt(MINE, replace(MINE, container="init", mounts={}), pods=pods) is None


def test_a_pod_that_has_ended_counts_for_nothing() -> None:
    assert doubt(MINE, OTHER, pods=frozenset({"pod-1"})) is None
    assert "to no container" in (doubt(MINE, pods=frozenset({"pod-2"})) or "")


def test_what_does_not_agree_is_told() -> None:
    assert doubt(problem="it cannot be read") == "it cannot be read"
    assert "to no container" in (doubt() or "")
    assert "to no container" in (doubt(replace(MINE, units=UNITS[:1])) or "")
    assert "container app of pod pod-2" in (doubt(MINE, OTHER) or "")


def test_devices_that_are_given_whole_are_one_pods_of_their_resource() -> None:
    gpu = KubeletEntry("pod-1", "main", "nvidia.com/gpu", ("GPU-0",), {})
    same_name = replace(gpu, pod_uid="pod-2", resource="nvidia.com/gpu.shared")

    def doubt_of(*entries: KubeletEntry) -> str | None:
        wanted = frozenset({"GPU-0"})
        return unconfirmed_devices(CheckpointReading(entries), "nvidia.com/gpu", wanted)

    assert doubt_of(gpu, same_name) is None
    assert "GPU-0 of nvidia.com/gpu to no container" in (doubt_of(same_name) or "")
    assert "to the pods pod-1 and pod-3" in (doubt_of(gpu, replace(gpu, pod_uid="pod-3")) or "")
