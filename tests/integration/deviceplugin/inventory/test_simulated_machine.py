"""The agent's inventory on the NVML of simulated machines."""

import json
from pathlib import Path

import pytest

from deviceplugin.inventory.topology import closeness
from libvgpu.sim import Machine, parse_spec
from support.sim.programs import run

LIST_GPUS = """
from dataclasses import asdict
from deviceplugin.inventory.nvml import NvmlInventory
gpus = NvmlInventory().gpus()
"""
SWITCH, NODE, SYSTEM = (closeness(0, level) for level in (10, 40, 50))


def said_on(spec: str, directory: Path, code: str) -> object:
    machine = Machine.create(parse_spec(spec).profiles, directory / "machine")
    return json.loads(run(machine, LIST_GPUS + code))


TABLE = """
say(table=[[gpu.closeness.get(other.uuid, 0) for other in gpus] for gpu in gpus],
    minors=[gpu.minor for gpu in gpus], nodes=[gpu.numa_node for gpu in gpus])
"""


@pytest.mark.parametrize(
    ("spec", "links"),
    [("h100*8", 18), ("h200-141g*8", 18), ("a100-80g*5", 12), ("h100*3", 9), ("a100-40g*4", 4)],
)
def test_gpus_with_nvlink_lie_equally_close(spec: str, links: int, tmp_path: Path) -> None:
    said = said_on(spec, tmp_path, TABLE)

    assert isinstance(said, dict)
    count = len(said["table"])
    near = closeness(links, None)
    assert said["table"] == [[0 if a == b else near for b in range(count)] for a in range(count)]
    assert said["minors"] == list(range(count))


@pytest.mark.parametrize("spec", ["t4*6", "l40s*6"])
def test_gpus_without_nvlink_lie_by_pairs_and_by_fours(spec: str, tmp_path: Path) -> None:
    said = said_on(spec, tmp_path, TABLE)

    assert isinstance(said, dict)
    assert said["table"][0] == [0, SWITCH, NODE, NODE, SYSTEM, SYSTEM]
    assert said["table"][5] == [SYSTEM, SYSTEM, SYSTEM, SYSTEM, SWITCH, 0]
    assert said["nodes"] == [0, 0, 0, 0, 1, 1]


def test_gpus_of_two_models_are_told_apart(tmp_path: Path) -> None:
    said = said_on("t4*2,a100-80g*2", tmp_path, TABLE)

    assert isinstance(said, dict)
    assert said["table"][0] == [0, SWITCH, NODE, NODE]
    assert said["table"][2] == [NODE, NODE, 0, closeness(12, None)]


MIG = """
(cut, other) = gpus
say(modes=[(g.is_mig_capable, g.is_mig_enabled, len(g.mig_devices)) for g in gpus],
    parts=[(p.mig.number, p.mig.profile, p.mig.gpu_slices, p.index, p.minor, p.memory_bytes >> 20)
           for p in cut.mig_devices],
    sizes=[(p.mig.multiprocessors, p.mig.compute_slices, p.mig.copy_engines, p.mig.decoders)
           for p in cut.mig_devices],
    uuids=[p.uuid for p in cut.mig_devices], parents=[p.mig.parent_uuid for p in cut.mig_devices],
    instances=[(p.mig.gpu_instance, p.mig.compute_instance) for p in cut.mig_devices],
    cut=cut.uuid)
"""


def test_mig_devices_are_listed_with_their_gpu(tmp_path: Path) -> None:
    said = said_on("a100-40g/mig=3g.20gb*2,t4", tmp_path, MIG)

    assert isinstance(said, dict)
    assert said["modes"] == [[True, True, 2], [False, False, 0]]
    assert said["parts"] == [[n, "3g.20gb", 3, 0, 0, 19968] for n in (0, 1)]
    assert said["sizes"] == [[42, 3, 3, 2]] * 2
    assert all(uuid.startswith("MIG-") for uuid in said["uuids"])
    assert said["parents"] == [said["cut"]] * 2
    assert len({tuple(each) for each in said["instances"]}) == 2


WATCH = """
import subprocess
from deviceplugin.inventory.health_watch import HealthWatch
told, began_s = [], time.monotonic()
uuids = [part.uuid for part in gpus[0].mig_devices] + [gpus[1].uuid]
watch = HealthWatch(uuids, lambda unhealthy: told.append(dict(unhealthy)), poll_s=0.2)
watch.start()
while not told and time.monotonic() < began_s + 60:
    # Again and again: what comes before the watch listens is told to nobody.
    subprocess.run([sys.executable, "-m", "vgpuctl", "sim", "inject", MACHINE + "/0", "xid", "48"],
                   check=True, stdout=subprocess.DEVNULL)
watch.stop()
say(told=told[0], parts=uuids[:-1])
"""


def test_an_error_that_names_no_mig_device_is_of_all_of_its_gpu(tmp_path: Path) -> None:
    machine = f"MACHINE = {str(tmp_path / 'machine')!r}\n"
    said = said_on("a100-40g/mig=1g.5gb*3,t4", tmp_path, machine + WATCH)

    assert isinstance(said, dict)
    assert said["told"] == dict.fromkeys(said["parts"], "XID 48 was reported")
