"""Pods with amounts that no node can ever give, which the admission policy must refuse with the
words why, and pods that come near to them, which it must let in.
"""

from dataclasses import dataclass
from typing import Any

Amounts = dict[str, int | str]
Pod = dict[str, Any]


@dataclass(frozen=True)
class Row:
    """One pod of one container, or more.

    Attributes:
        containers: what each asks for, by resource without its domain; those whose name begins with
            ``init`` run first.
        says: parts of the refusal's sentence; none where it must be let in.
        impossible: why no API server would take it whatever the policy says, if so.
    """

    name: str
    containers: dict[str, Amounts]
    says: tuple[str, ...] = ()
    impossible: str = ""
    namespace: str = "team-a"

    @property
    def pod(self) -> Pod:
        """Returns the pod."""
        containers, first = list[Pod](), list[Pod]()
        for name, amounts in self.containers.items():
            limits = {f"nvidia.com/{resource}": amount for resource, amount in amounts.items()}
            made = {"name": name, "image": "i", "resources": {"limits": limits}}
            (first if name.startswith("init") else containers).append(made)
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "p"},
            "spec": {"containers": containers, "initContainers": first},
        }


def _one(says: str = "", impossible: str = "", /, **amounts: int | str) -> Row:
    """A pod of one container; ``_`` in a resource's name stands for ``-``."""
    named = {name.replace("_", "-"): amount for name, amount in amounts.items()}
    words = " ".join(f"{name}={amount}" for name, amount in named.items())
    return Row(words, {"train": named}, tuple(filter(None, says.split("|"))), impossible)


_WHOLE = "allowed are 1 to 100, or 200, 300 and so on for whole GPUs"
_MIXED = "container train asks for nvidia.com/vgpu-* and nvidia.com/mps-*: a container has one"
_EITHER = "a container has either slices or whole devices"

_LET_IN = [
    *(_one(vgpu_core=n, vgpu_memory=16) for n in (1, 99, 100, 200, 1600, "1k", "2e2")),
    *(_one(mps_core=n, mps_memory=16) for n in (1, 100, 300)),
    _one(vgpu_core=150_000, vgpu_memory=1),
    _one(vgpu_core=30),
    _one(vgpu_core=200),
    _one(vgpu_memory=16),
    _one(vgpu_memory="16k"),
    _one(mps_core=30),
    _one(vgpu_core=0, vgpu_memory=0, mps_core=0, mps_memory=0),
    _one(vgpu_core=30, vgpu_memory=16, mps_core=0, mps_memory=0),
    _one(vgpu_memory=16, mps_core=0),
    _one(vgpu_core=30, vgpu_memory=16, gpu=0),
    _one(vgpu_core=30, vgpu_memory=16, rdma=1),
    _one(gpu=150),
    # Nothing of these is taken by an API server, which says so in its own words.
    *(_one("", "must be an integer", vgpu_core=n, vgpu_memory=1) for n in ("150500m", "0.5")),
    _one("", "must be greater than or equal to 0", vgpu_core=-150, vgpu_memory=1),
    _one(vgpu_core=0, gpu=1),
    Row(
        "one family each",
        {"train": {"vgpu-core": 30, "vgpu-memory": 8}, "serve": {"mps-core": 30, "mps-memory": 8}},
    ),
    Row("a slice and a whole GPU in two containers", {"train": {"vgpu-core": 30}, "s": {"gpu": 1}}),
    Row("halves one after the other", {"init-a": {"vgpu-core": 30}, "train": {"vgpu-memory": 8}}),
    Row("60 and 60 in two containers", {"a": {"vgpu-core": 60}, "b": {"vgpu-core": 60}}),
]

_REFUSED = [
    *(_one(f"container train asks for nvidia.com/vgpu-core: {n}: core is percent|{_WHOLE}",
           vgpu_core=n, vgpu_memory=16) for n in (101, 150, 199, 250, 1_000_001)),
    _one("container train asks for nvidia.com/vgpu-core: 1001:", vgpu_core="1001"),
    _one("container train asks for nvidia.com/vgpu-core: 1024:", vgpu_core="1Ki"),
    _one(f"train asks for nvidia.com/mps-core: 150:|{_WHOLE}", mps_core=150, mps_memory=1),
    _one("container train asks for nvidia.com/mps-memory: 16 without nvidia.com/mps-core: MPS has"
         " no left-over compute|ask for nvidia.com/mps-core too", mps_memory=16),
    _one("nvidia.com/mps-memory: 16 without", mps_memory=16, mps_core=0),
    *(_one(_MIXED, **{f"vgpu_{a}": 30, f"mps_{b}": 30})
      for a in ("core", "memory") for b in ("core", "memory")),
    _one(_MIXED, vgpu_core=30, vgpu_memory=16, mps_core=30, mps_memory=16),
    *(_one(f"container train asks for a slice and for nvidia.com/{device}: {_EITHER}",
           **{half: 30, device: 1})
      for half in ("vgpu_core", "vgpu_memory", "mps_core") for device in ("gpu", "gpu.shared")),
    Row("a slice and a MIG device", {"train": {"vgpu-core": 30, "mig-1g.10gb": 1}},
        ("a slice and for nvidia.com/mig-1g.10gb",)),
    Row("an init container", {"init": {"vgpu-core": 150}, "train": {"vgpu-core": 50}},
        ("init container init asks for nvidia.com/vgpu-core: 150:",)),
    Row("two of three", {"a": {"vgpu-core": 150}, "b": {"vgpu-core": 50}, "c": {"mps-core": 101}},
        ("container a asks for nvidia.com/vgpu-core: 150; container c asks for nvidia.com/mps-core",
         )),
    Row("only the second asks", {"a": {}, "b": {"mps-memory": 8}}, ("container b asks",)),
]  # fmt: skip

#: Judged by the chart as it is.
ROWS = [*_LET_IN, *_REFUSED]
#: Judged where lone halves of family vgpu are forbidden.
LONE_ROWS = [
    _one(vgpu_core=30, vgpu_memory=16),
    _one(vgpu_core=0, vgpu_memory=0),
    _one(mps_core=30),
    _one("container train asks for nvidia.com/vgpu-core: 30 without nvidia.com/vgpu-memory: "
         "loneHalves is forbid here|add the other one", vgpu_core=30),
    _one("nvidia.com/vgpu-core: 200 without", vgpu_core=200),
    _one("nvidia.com/vgpu-core: 30 without", vgpu_core=30, vgpu_memory=0),
    _one("container train asks for nvidia.com/vgpu-memory: 16 without nvidia.com/vgpu-core:",
         vgpu_memory=16),
    Row("halves of two containers", {"a": {"vgpu-core": 30}, "b": {"vgpu-memory": 8}},
        ("container a asks for nvidia.com/vgpu-core: 30 without",
         "; container b asks for nvidia.com/vgpu-memory: 8 without")),
]  # fmt: skip


def many(containers: int) -> Pod:
    """Returns a pod of many containers that ask for everything they may."""
    asks: dict[str, Amounts] = {
        f"c{n}": {"vgpu-core": 30, "vgpu-memory": 16, "rdma": 1} for n in range(containers)
    }
    return Row("many", asks).pod
