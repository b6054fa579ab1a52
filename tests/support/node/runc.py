"""``runc.py RUNC DEVICES-BY DRIVER MACHINE ARGUMENTS…``: runc as NVIDIA's runtime runs it.

That runtime brings the driver's libraries and devices into each container that names GPUs, and
leaves all others alone. So does this one, with the libraries of the simulated driver and the
simulated machine's directory: it edits the OCI bundle's config.json before ``create``, and the
process's file before ``exec``. The rest is runc's, which takes over this very process. Of the
product it does nothing: the shim and the slice come through the kubelet.

DEVICES-BY says what names GPUs, as the runtime's own settings do: ``envvar``, the variable
NVIDIA_VISIBLE_DEVICES; ``volume-mounts``, mounts of /dev/null alone
(``accept-nvidia-visible-devices-as-volume-mounts = true`` and
``accept-nvidia-visible-devices-envvar-when-unprivileged = false``).

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
#: The simulated MPS tool, from the folder above that of the libraries, and what it imports.
MPS = (("bin/nvidia-cuda-mps-control", "/usr/bin/nvidia-cuda-mps-control"), ("mps", "/usr/mps"))
#: Where the loader looks in every image of this architecture, without a cache.
LIBRARY_DIRECTORY = "/usr/lib/x86_64-linux-gnu"
MACHINE_DIRECTORY = "/run/vgpu-sim"
#: Mounts of /dev/null below it are named like GPUs.
LIST_DIRECTORY = "/var/run/nvidia-container-devices/"
NOTHING = ("", "void", "none")
_OURS = "VGPU_SIM_"


def _option(arguments: list[str], *names: str) -> str | None:
    places = [place for place, word in enumerate(arguments[:-1]) if word in names]
    return arguments[places[0] + 1] if places else None


def _named(config: dict[str, Any], devices_by: str) -> str:
    """Returns the GPUs that a container names, with commas between them."""
    if devices_by == "volume-mounts":
        return ",".join(
            mount["destination"][len(LIST_DIRECTORY) :]
            for mount in config["mounts"]
            if mount.get("source") == "/dev/null"
            and mount["destination"].startswith(LIST_DIRECTORY)
        )
    last = ""
    for entry in config["process"].get("env", ()):
        if entry.startswith("NVIDIA_VISIBLE_DEVICES="):
            last = entry.partition("=")[2]  # the last one counts, as for a program
    return last


def _bind(source: str, target: str, mode: str) -> dict[str, Any]:
    return {
        "destination": target,
        "type": "bind",
        "source": source,
        "options": ["rbind", "nosuid", mode],
    }


def _env_of(runc: str, arguments: list[str]) -> list[str]:
    """Returns what `bring` gave to the first process of the container that ``exec`` is about."""
    import subprocess  # late: only few runs come here

    root = _option(arguments, "--root") or "/run/runc"
    said = subprocess.run(
        [runc, "--root", root, "state", arguments[-1]], stdout=subprocess.PIPE, check=True
    ).stdout
    with open(os.path.join(json.loads(said)["bundle"], "config.json")) as file:
        env = json.load(file)["process"]["env"]
    return [entry for entry in env if entry.startswith(_OURS)]


def edit(path: str, change: Callable[[dict[str, Any]], bool]) -> None:
    """Rewrites a JSON file if ``change`` returns true for its content."""
    with open(path) as file:
        content = json.load(file)
    if change(content):
        with open(path, "w") as file:
            json.dump(content, file)


def main() -> None:
    """Edits what is to be edited and becomes runc."""
    runc, devices_by, driver, machine, *arguments = sys.argv[1:]
    simulator = os.path.dirname(driver)

    def bring(config: dict[str, Any]) -> bool:
        gpus = _named(config, devices_by)
        if gpus in NOTHING:
            return False
        env = config["process"].setdefault("env", [])
        env.append(f"{_OURS}MACHINE={MACHINE_DIRECTORY}")
        if gpus != "all":
            env.append(f"{_OURS}VISIBLE={gpus}")
        config["mounts"] += [
            *(_bind(f"{driver}/{name}", f"{LIBRARY_DIRECTORY}/{name}", "ro") for name in LIBRARIES),
            *(_bind(f"{simulator}/{name}", target, "ro") for name, target in MPS),
            _bind(machine, MACHINE_DIRECTORY, "rw"),
        ]
        return True

    def see(process: dict[str, Any]) -> bool:
        given = _env_of(runc, arguments)
        process.setdefault("env", []).extend(given)
        return bool(given)

    if "create" in arguments:
        edit(os.path.join(_option(arguments, "--bundle", "-b") or ".", "config.json"), bring)
    elif "exec" in arguments:
        process = _option(arguments, "--process", "-p")
        assert process, "containerd names a file"
        edit(process, see)
    os.execv(runc, [runc, *arguments])  # noqa: S606 - it becomes runc


if __name__ == "__main__":
    main()
