"""Pods that the admission policy must let in, and pods that it must refuse, with the words why.

Each row is a change to one of three pods: a container with a slice (`asks`), one with an init
container and a second container without (`three`), and one that asks for nothing (`plain`).
"""

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Pod = dict[str, Any]
Change = Callable[[Pod], None]


@dataclass(frozen=True)
class Row:
    """One pod.

    Attributes:
        says: parts of the refusal's sentence; none where it must be let in.
        impossible: why no API server would take it whatever the policy says, if so; a policy must
            still not rely on that.
    """

    name: str
    pod: Pod
    says: tuple[str, ...] = ()
    impossible: str = ""
    namespace: str = "team-a"


def _pod(*resources: str) -> Pod:
    limits = dict.fromkeys(resources, 30)
    container = {"name": "train", "image": "i", "resources": {"limits": limits}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p"},
        "spec": {"containers": [container]},
    }


def _three() -> Pod:
    pod = _pod("nvidia.com/mps-core", "nvidia.com/mps-memory")
    pod["spec"]["initContainers"] = [{"name": "fetch", "image": "i"}]
    pod["spec"]["containers"].append({"name": "proxy", "image": "i"})
    return pod


def _debugged(pod: Pod) -> Pod:
    debug = {"name": "debug", "image": "i", "terminationMessagePolicy": "File"}
    pod["spec"]["ephemeralContainers"] = [debug]
    return pod


def _container(pod: Pod, which: str) -> dict[str, Any]:
    spec = pod["spec"]
    every = (
        spec["containers"] + spec.get("initContainers", []) + spec.get("ephemeralContainers", [])
    )
    return next(c for c in every if c["name"] == which)


def env(which: str, name: str, value: str = "x") -> Change:
    """A variable of a container."""
    return lambda pod: (
        _container(pod, which).setdefault("env", []).append({"name": name, "value": value})
    )


def mount(which: str, path: str) -> Change:
    """An empty volume mounted in a container."""

    def change(pod: Pod) -> None:
        pod["spec"].setdefault("volumes", []).append({"name": "scratch", "emptyDir": {}})
        mounted = _container(pod, which).setdefault("volumeMounts", [])
        mounted.append({"name": "scratch", "mountPath": path})

    return change


def host_path(path: str) -> Change:
    """A volume that is a directory of the node."""
    volume = {"name": "node", "hostPath": {"path": path}}
    return lambda pod: pod["spec"].setdefault("volumes", []).append(volume)


def security(which: str, **context: Any) -> Change:
    """A security context of a container."""
    return lambda pod: _container(pod, which).setdefault("securityContext", {}).update(context)


def capability(which: str, name: str) -> Change:
    """A capability added to a container."""
    return security(which, capabilities={"add": [name]})


def spec(**fields: Any) -> Change:
    """Fields of the pod."""
    return lambda pod: pod["spec"].update(fields)


def block(which: str, path: str) -> Change:
    """A volume claim's raw device in a container."""

    def change(pod: Pod) -> None:
        claim = {"name": "disk", "persistentVolumeClaim": {"claimName": "disk"}}
        pod["spec"].setdefault("volumes", []).append(claim)
        _container(pod, which)["volumeDevices"] = [{"name": "disk", "devicePath": path}]

    return change


def _asks() -> Pod:
    return _pod("nvidia.com/vgpu-core", "nvidia.com/vgpu-memory")


def _row(name: str, pod: Pod, *changes: Change, says: str = "", impossible: str = "") -> Row:
    pod = copy.deepcopy(pod)
    for change in changes:
        change(pod)
    return Row(name, pod, tuple(filter(None, says.split("|"))), impossible)


_LET_IN = [
    _row("a slice and nothing else", _asks()),
    _row("three containers", _three()),
    *(_row(f"{name} is a program's own business", _asks(), env("train", name)) for name in (
        "LD_PRELOAD", "LD_LIBRARY_PATH", "LD_AUDIT", "CUDA_VISIBLE_DEVICES", "VGPU_LOG",
        "NVIDIA_DRIVER_CAPABILITIES", "MY_CUDA_MPS_PIPE_DIRECTORY", "nvidia_visible_devices")),
    *(_row(f"a mount at {path}", _asks(), mount("train", path)) for path in (
        "/data", "/dev/shm", "/run/secrets/x", "/run/vgpu2", "/var/lib/app", "/var", "/etc/vgpu",
        "/etc/ld.so.preload.d", "/tmp", "/home/run/vgpu", "/etc..", "/..data")),
    *(_row(f"hostPath {path}", _asks(), host_path(path)) for path in (
        "/mnt/data", "/var/lib/vgpu2", "/run/containers", "/data/run/vgpu", "/dev/shm", "/etc/cdi2",
        "/processed")),
    *(_row(f"capability {name}", _asks(), capability("train", name))
      for name in ("IPC_LOCK", "SYS_PTRACE", "NET_ADMIN", "SYS_NICE")),
    _row("hostIPC and user 1000", _three(), spec(hostIPC=True),
         security("train", runAsUser=1000, readOnlyRootFilesystem=True, privileged=False)),
    _row("hostPID alone", _asks(), spec(hostPID=True)),
    _row("a debug container", _debugged(_three())),
    _row("a debug container with a variable", _debugged(_asks()), env("debug", "PS1")),
    _row("every other volume", _asks(), spec(volumes=[
        {"name": "a", "emptyDir": {}}, {"name": "b", "configMap": {"name": "c"}}])),
    _row("no slice: a privileged pod of the node", _pod(), security("train", privileged=True),
         host_path("/"), mount("train", "/run/vgpu"), env("train", "VGPU_DIR")),
    _row("no slice: another's resource", _pod("example.com/vgpu-core"), env("train", "VGPU_DIR")),
    _row("no slice: all GPUs by name", _pod(), env("train", "NVIDIA_VISIBLE_DEVICES", "all")),
    _row("no slice: a debug container", _debugged(_pod()), security("debug", privileged=True)),
]  # fmt: skip

_REFUSED = [
    *(_row(f"{resource} and a variable", _pod(f"nvidia.com/{resource}"), env("train", "VGPU_DIR"),
           says="container train sets VGPU_DIR")
      for resource in ("vgpu-core", "vgpu-memory", "mps-core", "mps-memory")),
    *(_row(f"variable {name}", _asks(), env("train", name), says=f"container train sets {name}")
      for name in ("NVIDIA_VISIBLE_DEVICES", "CUDA_MPS_PIPE_DIRECTORY", "VGPU_DIR",
                   "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT")),
    _row("NVIDIA_VISIBLE_DEVICES=void", _asks(), env("train", "NVIDIA_VISIBLE_DEVICES", "void"),
         says="container train sets NVIDIA_VISIBLE_DEVICES"),
    _row("a variable of an init container", _three(), env("fetch", "NVIDIA_VISIBLE_DEVICES", "all"),
         says="init container fetch sets NVIDIA_VISIBLE_DEVICES"),
    _row("a variable of a neighbour", _three(), env("proxy", "NVIDIA_VISIBLE_DEVICES", "all"),
         says="container proxy sets NVIDIA_VISIBLE_DEVICES"),
    _row("a variable of a debug container", _debugged(_asks()), env("debug", "VGPU_DIR"),
         says="ephemeral container debug sets VGPU_DIR"),
    _row("two variables of two containers", _three(), env("train", "LANG"),
         env("train", "VGPU_DIR"), env("fetch", "CUDA_MPS_X"),
         says="container train sets VGPU_DIR|fetch sets CUDA_MPS_X"),
    *(_row(f"a mount at {path}", _asks(), mount("train", path),
           says=f"container train mounts {path}") for path in (
        "/etc/ld.so.preload", "/etc/ld.so.preload/", "//etc//ld.so.preload", "/etc/./ld.so.preload",
        "/etc/x/../ld.so.preload", "/etc", "/etc/", "/", "//", "/.", "/run", "/run/vgpu",
        "/run/vgpu/", "/run/vgpu/limits", "/run/vgpu/lib", "/run//vgpu/./usage", "run/vgpu",
        "/var/run", "/var/run/vgpu", "/var//run/vgpu/mps", "/data/..", "/run/vgpu/..", "../etc",
        "/var/run/nvidia-container-devices/all", "/run/nvidia-container-devices")),
    _row("a mount of an init container", _three(), mount("fetch", "/run/vgpu/limits"),
         says="init container fetch mounts /run/vgpu/limits"),
    _row("a mount of a debug container", _debugged(_three()), mount("debug", "/run"),
         says="ephemeral container debug mounts /run:"),
    _row("a raw device", _asks(), block("train", "/run/vgpu/usage"),
         says="container train mounts /run/vgpu/usage"),
    *(_row(f"hostPath {path}", _asks(), host_path(path), says=f"volume node is hostPath {path}")
      for path in ("/", "/run", "/run/", "/run/vgpu", "/run//vgpu/allocations", "/var/run/vgpu",
                   "/var/run", "/var", "/var/lib", "/var/lib/vgpu", "/var/lib/vgpu/lib",
                   "/var/lib/kubelet", "/var/lib/kubelet/device-plugins",
                   "/var/./lib//kubelet/pods", "/proc", "/proc/1/root", "//proc/self/root/run",
                   "/var/run/cdi", "/run/cdi/nvidia.yaml", "/etc/cdi", "/etc/kubernetes",
                   "/etc/kubernetes/node-feature-discovery/features.d/x")),
    _row("hostPath with ..", _asks(), host_path("/mnt/../run"), impossible="must not contain '..'",
         says="volume node is hostPath /mnt/../run"),
    _row("hostPath that nobody mounts, beside an init container's slice", _pod(),
         spec(initContainers=[_asks()["spec"]["containers"][0] | {"name": "first"}]),
         host_path("/run"), says="volume node is hostPath /run:"),
    _row("privileged", _asks(), security("train", privileged=True),
         says="container train has privileged: true"),
    _row("a privileged init container", _three(), security("fetch", privileged=True),
         says="init container fetch has privileged: true"),
    _row("a privileged debug container", _debugged(_asks()), security("debug", privileged=True),
         says="ephemeral container debug has privileged: true"),
    *(_row(f"capability {name}", _asks(), capability("train", name),
           says=f"container train has capability {name}") for name in (
        "SYS_ADMIN", "CAP_SYS_ADMIN", "sys_admin", "ALL", "SYS_MODULE", "SYS_RAWIO",
        "DAC_READ_SEARCH")),
    _row("tracing the node's processes", _asks(), capability("train", "SYS_PTRACE"),
         spec(hostPID=True), says="container train has capability SYS_PTRACE"),
    _row("a sidecar's slice", _pod(), env("train", "VGPU_DIR"), spec(initContainers=[
        _asks()["spec"]["containers"][0] | {"name": "side", "restartPolicy": "Always"}]),
        says="container train sets VGPU_DIR"),
]  # fmt: skip

ROWS = [*_LET_IN, *_REFUSED]


def of_names(names: list[str]) -> list[Pod]:
    """Returns a pod with a slice that sets each variable, for other domains."""
    return [_row(name, _pod(name), env("train", "VGPU_DIR")).pod for name in names]


def plain(*, debugged: bool = False) -> Pod:
    """Returns a pod that asks for nothing."""
    return _debugged(_pod()) if debugged else _pod()


def large(containers: int, each: int) -> Pod:
    """Returns an honest pod of many containers with many variables and mounts."""
    pod = _asks()
    paths = [f"/data/some/longer/path/of/a/program/{n:04}" for n in range(each)]
    names = [f"SOME_LONGER_NAME_OF_A_VARIABLE_{n:04}" for n in range(each)]
    first = pod["spec"]["containers"][0]
    pod["spec"]["volumes"] = [{"name": "scratch", "emptyDir": {}}]
    first["env"] = [{"name": name, "value": "v"} for name in names]
    first["volumeMounts"] = [{"name": "scratch", "mountPath": path} for path in paths]
    pod["spec"]["containers"] = [first | {"name": f"c{n}"} for n in range(containers)]
    return pod
