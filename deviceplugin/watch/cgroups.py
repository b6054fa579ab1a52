"""Which pod and container a process is in, by its ``/proc/PID/cgroup``. Pure.

A tenant cannot leave its cgroup, but it may make more of them below its own, under any name. So the
outermost directory that is named after a pod counts, and what follows it. Known are the names that
the kubelet's drivers give:

* cgroupfs: ``/kubepods/burstable/pod<uid>/<container>``
* systemd: ``/kubepods.slice/…/kubepods-burstable-pod<uid>.slice/cri-containerd-<container>.scope``,
  with ``_`` for each ``-`` of the uid
* a runtime of the other driver than the kubelet: ``kubepods-pod<uid>.slice:cri-containerd:<id>``

Nothing is asked of what stands before: a node that is a container itself has more there, and an
agent with a cgroup namespace of its own sees paths that begin with ``/..``.
"""

import re
from dataclasses import dataclass

_UID = r"([0-9a-f]{8}(?:[-_][0-9a-f]{4}){3}[-_][0-9a-f]{12}|[0-9a-f]{32})"
_POD = re.compile(rf"(?:[a-z0-9-]+-)?pod{_UID}(?:\.slice)?(?::[a-z-]+:([0-9a-f]{{12,64}}))?")
_CONTAINER = re.compile(r"(?:[a-z-]+-)?([0-9a-f]{64})(?:\.scope)?")


@dataclass(frozen=True, slots=True)
class PodCgroup:
    """A place among a node's pods.

    Attributes:
        pod_uid: as the API server writes it; a static pod's has no dashes.
        container_id: as the runtime names it; empty where the path ends with the pod.
    """

    pod_uid: str
    container_id: str


def pod_cgroup(text: str) -> PodCgroup | None:
    """Returns where ``text`` says that a process is, None where it is in no pod.

    Args:
        text: a whole ``/proc/PID/cgroup``. Where there are several hierarchies (v1), those that
            name a pod must name the same one.
    """
    # A newline is all that the name of a cgroup cannot hold.
    found = {place for line in text.split("\n") if (place := _of_path(line.split(":", 2)[-1]))}
    if len({place.pod_uid for place in found}) != 1:
        return None
    return max(found, key=lambda place: bool(place.container_id))


def _of_path(path: str) -> PodCgroup | None:
    parts = path.split("/")
    for number, part in enumerate(parts):
        pod = _POD.fullmatch(part)
        if pod is None:
            continue
        within = _CONTAINER.fullmatch(parts[number + 1]) if number + 1 < len(parts) else None
        container_id = pod[2] or (within[1] if within else "")
        return PodCgroup(pod[1].replace("_", "-"), container_id)
    return None
