"""``node_runc.py RUNC DRIVER MACHINE ARGUMENTS…``: runc as NVIDIA's container runtime would run it.

That runtime brings the driver's libraries and devices into each container whose
NVIDIA_VISIBLE_DEVICES names GPUs, and leaves all others alone. So does this one, with the libraries
of the simulated driver and the simulated machine's directory: it edits the OCI bundle's config.json
before ``create``, and the process's file before ``exec``. The rest is runc's, which takes over
this very process. Of the product it does nothing: the shim and the slice come through the kubelet.

Run with ``python -I -S``, many times for each container, so it imports next to nothing; not even
what its annotations are made of.
"""

from __future__ import annotations

import json
import os
import sys

TYPE_CHECKING = False  # `typing` takes longer to import than all the rest
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

LIBRARIES = ("libcuda.so.1", "libnvidia-ml.so.1")
#: Where the loader looks in every image of this architecture, without a cache.
LIBRARY_DIRECTORY = "/usr/lib/x86_64-linux-gnu"
MACHINE_DIRECTORY = "/run/vgpu-sim"
NOTHING = ("", "void", "none")


def _option(arguments: list[str], *names: str) -> str | None:
    places = [place for place, word in enumerate(arguments[:-1]) if word in names]
    return arguments[places[0] + 1] if places else None


def _see(process: dict[str, Any]) -> bool:
    """Has a process see the GPUs that its environment names; returns whether there are any."""
    env = process.setdefault("env", [])
    last = ""
    for entry in env:
        if entry.startswith("NVIDIA_VISIBLE_DEVICES="):
            last = entry.partition("=")[2]  # the last one counts, as for a program
    if last in NOTHING:
        return False
    env.append(f"VGPU_SIM_MACHINE={MACHINE_DIRECTORY}")
    if last != "all":
        env.append(f"VGPU_SIM_VISIBLE={last}")
    return True


def _bind(source: str, target: str, mode: str) -> dict[str, Any]:
    return {
        "destination": target,
        "type": "bind",
        "source": source,
        "options": ["rbind", "nosuid", mode],
    }


def edit(path: str, change: Callable[[dict[str, Any]], bool]) -> None:
    """Rewrites a JSON file if ``change`` returns true for its content."""
    with open(path) as file:
        content = json.load(file)
    if change(content):
        with open(path, "w") as file:
            json.dump(content, file)


def main() -> None:
    """Edits what is to be edited and becomes runc."""
    runc, driver, machine, *arguments = sys.argv[1:]

    def bring(config: dict[str, Any]) -> bool:
        if not _see(config["process"]):
            return False
        config["mounts"] += [
            *(_bind(f"{driver}/{name}", f"{LIBRARY_DIRECTORY}/{name}", "ro") for name in LIBRARIES),
            _bind(machine, MACHINE_DIRECTORY, "rw"),
        ]
        return True

    if "create" in arguments:
        edit(os.path.join(_option(arguments, "--bundle", "-b") or ".", "config.json"), bring)
    elif "exec" in arguments:
        process = _option(arguments, "--process", "-p")
        assert process, "containerd names a file"
        edit(process, _see)
    os.execv(runc, [runc, *arguments])


if __name__ == "__main__":
    main()
