"""`vgpuctl mig apply` on simulated GPUs: what is cut, and what is left as it is."""

import os
import subprocess
from pathlib import Path

from deviceplugin.config.source import ConfigText
from deviceplugin.policy.gpu_numbers import GpuRecord, RecordedGpu
from deviceplugin.store.kept_config import KeptConfig
from libvgpu.sim import Machine, parse_spec
from support import warm
from support.lines import expect
from support.node.simulated import SimulatedNode
from support.sim.programs import finish, start
from support.waiting import PATIENCE_S, wait_until

MIX = "version: v1\nmig:\n- {devices: [0], profiles: {3g.20gb: 1, 2g.10gb: 1, 1g.5gb: 1}}\n"
WHOLE = "version: v1\nmig:\n- {profiles: {}}\n"
HOLD = """
check(cuda.cuInit(0))
open_context()
print("ready", flush=True)
sys.stdin.readline()
"""


def apply(
    machine: Machine, file: Path, text: str, *options: str
) -> subprocess.CompletedProcess[str]:
    file.write_text(text)
    words = ["-m", "vgpuctl", "mig", "apply", str(file), *options]
    return warm.run(words, machine.environment(os.environ))


def profiles(machine: Machine, gpu: int = 0) -> list[str]:
    return sorted(each.profile for each in machine.mig_layout(gpu) or ())


def test_a_gpu_is_cut_as_declared_once_and_made_whole_again(short_path: Path) -> None:
    machine = Machine.create(parse_spec("a100-40g*2").profiles, short_path / "machine")
    run_dir = f"--run-dir={short_path / 'r'}"
    said = apply(machine, short_path / "c.yaml", MIX, run_dir, "--dry-run")
    assert said.returncode == 1
    assert "it is not in MIG mode, the config says 1 x 3g.20gb, 1 x 2g.10gb" in said.stdout
    assert profiles(machine) == []

    done = apply(machine, short_path / "c.yaml", MIX, run_dir)

    assert done.returncode == 0, done.stderr
    assert profiles(machine) == ["1g.5gb", "2g.10gb", "3g.20gb"]
    assert profiles(machine, 1) == []
    again = apply(machine, short_path / "c.yaml", MIX, run_dir)
    assert (again.returncode, again.stdout) == (0, "every GPU is as the config says\n")
    assert apply(machine, short_path / "c.yaml", WHOLE, run_dir).returncode == 0
    assert machine.mig_layout(0) is None


def test_a_profile_that_a_gpu_lacks_changes_nothing(short_path: Path) -> None:
    machine = Machine.create(parse_spec("a100-40g/mig=2g.10gb*3").profiles, short_path / "machine")
    text = "version: v1\nmig:\n- {profiles: {1g.10gb+xyz: 1}}\n"

    done = apply(machine, short_path / "c.yaml", text, f"--run-dir={short_path / 'r'}")

    assert done.returncode == 1
    assert "this GPU has no profile 1g.10gb+xyz; it has " in done.stderr
    assert profiles(machine) == ["2g.10gb"] * 3


def test_what_has_no_room_brings_back_what_was_there(short_path: Path) -> None:
    machine = Machine.create(parse_spec("a100-40g/mig=2g.10gb*3").profiles, short_path / "machine")
    text = "version: v1\nmig:\n- {profiles: {4g.20gb: 2}}\n"

    done = apply(machine, short_path / "c.yaml", text, f"--run-dir={short_path / 'r'}")

    assert done.returncode == 1
    assert "what was there before was made again, with new UUIDs" in done.stderr
    assert profiles(machine) == ["2g.10gb"] * 3


def test_a_process_keeps_its_mig_device(short_path: Path) -> None:
    machine = Machine.create(parse_spec("a100-40g/mig=7g.40gb").profiles, short_path / "machine")
    program = start(machine, HOLD, {"CUDA_VISIBLE_DEVICES": machine.instances[0].uuid})
    try:
        expect(program)
        done = apply(machine, short_path / "c.yaml", MIX, f"--run-dir={short_path / 'r'}")
        assert done.returncode == 1
        assert "In use by another client" in done.stderr
        assert profiles(machine) == ["7g.40gb"]
        finish(program, "\n")
    finally:
        program.kill()


def test_the_agent_offers_what_was_cut_and_keeps_what_a_container_has(short_path: Path) -> None:
    config = MIX + "flags: {migStrategy: mixed}\n"
    gpu, small = "nvidia.com/gpu", "nvidia.com/mig-1g.5gb"
    node = SimulatedNode(short_path, "a100-40g*2", config, [gpu])
    run_dir = f"--run-dir={short_path / 'r'}"
    try:
        pod = next(
            each
            for each in (node.admit(f"p{n}", gpu=1) for n in range(2))
            if node.devices(each) == [node.machine.devices[0].uuid]
        )
        wait_until(lambda: '"owner": "default/' in state(short_path), "the agent knows whose it is")
        kept = apply(node.machine, short_path / "other.yaml", config, run_dir)
        assert kept.returncode == 1
        assert f"has {node.machine.devices[0].uuid} of nvidia.com/gpu" in kept.stderr

        node.kubelet.finish(pod)
        wait_until(
            lambda: apply(node.machine, short_path / "other.yaml", config, run_dir).returncode == 0,
            "the GPU is cut once nobody has it",
        )

        node.kubelet.wait_for_resources([small], PATIENCE_S)
        offered = node.kubelet.allocatable()
        assert (offered[small], offered["nvidia.com/mig-3g.20gb"]) == (1, 1)
    finally:
        node.close()


def state(short_path: Path) -> str:
    import http.client
    import socket

    connection = http.client.HTTPConnection("localhost")
    connection.sock = socket.socket(socket.AF_UNIX)
    connection.sock.connect(str(short_path / "r" / "agent.sock"))
    connection.request("GET", "/v1/state")
    return connection.getresponse().read().decode()


def test_an_index_means_the_gpu_that_it_meant_to_the_agent(short_path: Path) -> None:
    machine = Machine.create(parse_spec("a100-40g*2").profiles, short_path / "machine")
    first, second = (device.uuid for device in machine.devices)
    record = GpuRecord(
        frozenset("0"), (RecordedGpu(0, second, "A100"), RecordedGpu(1, first, "A100"))
    )
    (short_path / "s").mkdir()
    KeptConfig(short_path / "s").keep(ConfigText("c", MIX), record)
    options = (f"--run-dir={short_path / 'r'}", f"--state-dir={short_path / 's'}")

    done = apply(machine, short_path / "c.yaml", MIX, *options)

    assert done.returncode == 0, done.stderr
    assert profiles(machine, 1) == ["1g.5gb", "2g.10gb", "3g.20gb"]
    assert profiles(machine, 0) == []
