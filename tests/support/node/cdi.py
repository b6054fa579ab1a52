"""A CDI spec of the simulated driver, as ``nvidia-ctk cdi generate`` writes one of the real driver.

A runtime that speaks CDI then does what `node.runc` does where none is: it brings the driver's
libraries and the machine's directory, and shows the GPUs that were asked for by name.
"""

import json
from pathlib import Path
from typing import Any

from deviceplugin.config.device_forms import DEFAULT_CDI_KIND as CDI_KIND
from libvgpu.artifacts import SIM_LIBRARY_DIR
from libvgpu.sim import Machine
from support.node.runc import LIBRARIES, LIBRARY_DIRECTORY, MACHINE_DIRECTORY

#: Where every runtime looks for specs that somebody writes again after each boot.
DIRECTORY = "/run/cdi"
FILE = "simulated.json"


def write(directory: Path, machine: Machine) -> Path:
    """Writes the spec of all GPUs of a machine; returns the file.

    Args:
        directory: the node's `DIRECTORY`, made where it is missing.
    """
    directory.mkdir(exist_ok=True)
    file = directory / FILE
    draft = file.with_suffix(".new")
    draft.write_text(json.dumps(spec(machine)))
    draft.replace(file)
    return file


def spec(machine: Machine) -> dict[str, Any]:
    """Returns the spec: each GPU under its UUID."""
    libraries = [
        _mount(f"{SIM_LIBRARY_DIR}/{name}", f"{LIBRARY_DIRECTORY}/{name}", "ro")
        for name in LIBRARIES
    ]
    return {
        "cdiVersion": "0.6.0",
        "kind": CDI_KIND,
        "devices": [
            {"name": gpu.uuid, "containerEdits": {"env": [f"VGPU_SIM_VISIBLE={gpu.uuid}"]}}
            for gpu in machine.devices
        ],
        "containerEdits": {
            "env": [f"VGPU_SIM_MACHINE={MACHINE_DIRECTORY}"],
            "mounts": [*libraries, _mount(str(machine.directory), MACHINE_DIRECTORY, "rw")],
        },
    }


def _mount(host_path: str, container_path: str, mode: str) -> dict[str, Any]:
    return {
        "hostPath": host_path,
        "containerPath": container_path,
        "options": ["rbind", "nosuid", mode],
    }
