"""Which pod and container ``/proc/PID/cgroup`` names, in every form that runtimes give it."""

import pytest

from deviceplugin.watch.cgroups import PodCgroup, pod_cgroup

UID = "0f5cd3cb-8e76-4b4b-8f62-3a9d1d2c7e11"
LOW = UID.replace("-", "_")
OTHER = "aaaaaaaa-bbbb-cccc-dddd-eeeeeeeeeeee"
STATIC = "3f1c8a1e5d6b7c8d9e0f1a2b3c4d5e6f"
ID = "c" * 64

PATHS = {
    "cgroupfs": f"/kubepods/burstable/pod{UID}/{ID}",
    "cgroupfs, guaranteed": f"/kubepods/pod{UID}/{ID}",
    "systemd, containerd": (
        f"/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod{LOW}.slice/"
        f"cri-containerd-{ID}.scope"
    ),
    "systemd, guaranteed": f"/kubepods.slice/kubepods-pod{LOW}.slice/cri-containerd-{ID}.scope",
    "cri-o": f"/kubepods.slice/kubepods-burstable-pod{LOW}.slice/crio-{ID}.scope",
    "cri-o, crun": f"/kubepods.slice/kubepods-burstable-pod{LOW}.slice/crio-{ID}.scope/container",
    "docker": f"/kubepods.slice/kubepods-burstable-pod{LOW}.slice/docker-{ID}.scope",
    "kind": f"/docker/{'d' * 64}/kubelet.slice/kubelet-kubepods.slice/"
    f"kubelet-kubepods-pod{LOW}.slice/cri-containerd-{ID}.scope",
    "drivers that differ": f"/system.slice/containerd.service/kubepods-burstable-pod{LOW}.slice:"
    f"cri-containerd:{ID}",
    "seen from another pod, systemd": f"/../../kubepods-pod{LOW}.slice/cri-containerd-{ID}.scope",
    "seen from another pod, cgroupfs": f"/../../pod{UID}/{ID}",
    "docker within the pod": f"/kubepods/pod{UID}/{ID}/docker/{'e' * 64}",
    "a name like a line": f"/kubepods/pod{UID}/{ID}/\r0::/kubepods/pod{OTHER}",
    "likewise, with a separator": f"/kubepods/pod{UID}/{ID}/\u20280::/kubepods/pod{OTHER}",
    "a forged pod within the pod": f"/kubepods/pod{UID}/{ID}/kubepods/pod{OTHER}/{'e' * 64}",
}


@pytest.mark.parametrize("path", PATHS.values(), ids=PATHS.keys())
def test_a_path_names_pod_and_container(path: str) -> None:
    assert pod_cgroup(f"0::{path}\n") == PodCgroup(UID, ID)


def test_version_1_names_them_in_each_hierarchy() -> None:
    path = PATHS["cgroupfs"]
    text = f"12:memory:{path}\n4:cpu,cpuacct:{path}\n1:name=systemd:/\n0::/\n"

    assert pod_cgroup(text) == PodCgroup(UID, ID)


def test_a_static_pods_uid_has_no_dashes() -> None:
    assert pod_cgroup(f"0::/kubepods/burstable/pod{STATIC}/{ID}\n") == PodCgroup(STATIC, ID)


def test_a_pods_own_cgroup_has_no_container() -> None:
    assert pod_cgroup(f"0::/kubepods/pod{UID}\n") == PodCgroup(UID, "")
    monitor = f"0::/kubepods.slice/kubepods-pod{LOW}.slice/crio-conmon-{ID}.scope\n"
    found = pod_cgroup(monitor)
    assert found is not None
    assert found.pod_uid == UID


@pytest.mark.parametrize(
    "text",
    [
        "",
        "0::/\n",
        "0::/user.slice/user-0.slice/session-1.scope\n",
        "0::/system.slice/podman.service\n",
        f"0::/system.slice/{ID}.scope\n",
        f"0::/kubepods/pod{UID}x/{ID}\n",
        f"0::/kubepods/pod{UID[:-1]}/{ID}\n",
        f"2:memory:/kubepods/pod{UID}/{ID}\n1:cpu:/kubepods/pod{OTHER}/{ID}\n",
        "nonsense",
    ],
)
def test_what_names_no_pod_or_two_is_in_none(text: str) -> None:
    assert pod_cgroup(text) is None
