"""What the agent survives and follows: restarts, failed pods, an edited config file."""

import logging

import pytest

from deviceplugin.store import kept_config
from deviceplugin.store.journal import replay
from deviceplugin.testing import AdmissionFailed
from libvgpu import allocation_dirs
from libvgpu.errors import ConfigError
from libvgpu.limits import ComputeMode
from support.node.in_process import CONFIG, GIB, RESOURCES, InProcessNode, only_device
from support.waiting import PATIENCE_S, wait_until
from vgpuctl.agent_client import agent_report, metrics_page

pytestmark = pytest.mark.usefixtures("in_world")


def test_a_restarted_agent_keeps_every_allocation(node: InProcessNode) -> None:
    pod = node.admit("a", {"vgpu-core": 60, "vgpu-memory": 10})
    before = node.limit(pod)
    node.stop_agent()
    assert not list((node.kubelet_dir / "device-plugins").glob("nvidia*")), "sockets are left"

    node.start_agent()
    node.wait_registered()

    assert node.limit(pod) == before
    node.admit("b", {"vgpu-core": 60, "vgpu-memory": 10})
    with pytest.raises(AdmissionFailed):
        node.admit("c", {"vgpu-core": 60, "vgpu-memory": 1})


def test_a_pod_that_failed_half_way_spoils_no_later_pair(node: InProcessNode) -> None:
    for n in range(6):  # the order of the halves is random; the stand-in's seed is not
        with pytest.raises(AdmissionFailed, match="requested number of devices unavailable"):
            node.admit(f"bad{n}", {"vgpu-core": 1, "vgpu-memory": 999})

        pod = node.admit(f"good{n}", {"vgpu-core": 5, "vgpu-memory": 2})

        device = node.limit(pod)
        assert (device.core_percent, device.memory_limit_bytes) == (5, 2 * GIB)


def test_what_a_failed_pod_got_is_there_for_the_next_at_once(node: InProcessNode) -> None:
    for n in range(6):
        with pytest.raises(AdmissionFailed, match="requested number of devices unavailable"):
            node.admit(f"core{n}", {"mps-core": 1, "mps-memory": 999})
        with pytest.raises(AdmissionFailed, match="requested number of devices unavailable"):
            node.admit(f"memory{n}", {"mps-core": 999, "mps-memory": 1})

        whole = node.admit(f"whole{n}", {"mps-core": 100, "mps-memory": 16})

        assert node.limit(whole).memory_limit_bytes == 16 * GIB
        node.kubelet.finish(whole)


def test_a_socket_that_vanishes_is_served_and_registered_again(
    node: InProcessNode, caplog: pytest.LogCaptureFixture
) -> None:
    # The kubelet may have a list before the agent has said that it registered.
    wait_until(lambda: all(r.registered_at for r in agent_report(node.run_dir).resources))
    caplog.set_level(logging.INFO, "deviceplugin")
    (node.kubelet_dir / "device-plugins" / "nvidia.com-vgpu-core.sock").unlink()

    wait_until(lambda: "registered" in caplog.messages)
    node.wait_registered()  # the list comes after the registration

    assert caplog.messages.count("registered") == 1, "the other three were disturbed"
    node.limit(node.admit("a", {"vgpu-core": 10, "vgpu-memory": 1}))


def test_a_restarted_kubelet_gets_the_plugins_back_soon(node: InProcessNode) -> None:
    node.kubelet.stop()
    node.kubelet.start()

    node.kubelet.wait_for_resources(RESOURCES, 1.0)

    node.limit(node.admit("a", {"vgpu-core": 10, "vgpu-memory": 1}))


def test_an_emptied_run_directory_is_put_back_before_a_container_starts(
    node: InProcessNode,
) -> None:
    pod = node.admit("a", {"vgpu-core": 30, "vgpu-memory": 4})
    before = node.limit(pod)
    for directory in (node.run_dir / "allocations").iterdir():
        allocation_dirs.remove(directory)

    assert node.limit(pod) == before


def test_a_pod_that_comes_after_the_run_directory_was_emptied_is_admitted(
    node: InProcessNode,
) -> None:
    node.admit("a", {"vgpu-core": 30, "vgpu-memory": 4})
    gone = node.run_dir.with_name("gone")
    gone.mkdir()
    for entry in node.run_dir.iterdir():
        entry.rename(gone / entry.name)  # at one moment: the agent makes spare files meanwhile

    pod = node.admit("b", {"vgpu-core": 30, "vgpu-memory": 4})

    assert node.limit(pod).memory_limit_bytes == 4 * GIB


def test_an_ended_pod_gives_its_slice_back_to_the_next_at_once(node: InProcessNode) -> None:
    first = node.admit("a", {"mps-core": 100, "mps-memory": 16})
    directory = next((node.run_dir / "allocations").iterdir())
    wait_until(lambda: allocation_dirs.read_meta(directory).pod == "a")
    node.kubelet.finish(first)

    second = node.admit("b", {"mps-core": 100, "mps-memory": 16})

    assert node.limit(second).memory_limit_bytes == 16 * GIB
    assert not directory.exists()


def test_an_edited_rule_holds_in_the_running_container_within_a_second(
    node: InProcessNode,
) -> None:
    pod = node.admit("a", {"vgpu-core": 50, "vgpu-memory": 8})
    other = node.admit("b", {"vgpu-core": 50, "vgpu-memory": 8}, {"mps-core": 20, "mps-memory": 4})
    before = node.limit(pod)
    directory = next(
        a.directory
        for a in allocation_dirs.list_allocations(node.run_dir)
        if only_device(a.directory) == before
    )
    inode = (directory / "limits").stat().st_ino
    wait_until(lambda: allocation_dirs.read_meta(directory).container == "c0")
    wait_until(lambda: all(a.meta.pod for a in allocation_dirs.list_allocations(node.run_dir)))

    node.config.write_text(
        CONFIG + "limits:\n- match: {namespace: default, container: c0}\n"
        '  core: "60%"\n  memory: 3Gi\n  compute: strict\n'
    )

    wait_until(lambda: only_device(directory).memory_limit_bytes == 3 * GIB, patience_s=1.0)
    after = only_device(directory)
    assert (after.core_percent, after.compute_mode) == (30, ComputeMode.STRICT)
    assert (directory / "limits").stat().st_ino == inode
    assert node.limit(other, "c1").memory_limit_bytes == 4 * GIB


def test_a_bad_config_is_rejected_whole_and_shows_in_the_metrics(node: InProcessNode) -> None:
    pod = node.admit("a", {"vgpu-core": 50, "vgpu-memory": 8})
    assert "vgpu_config_reload_success 1.0" in metrics_page(node.run_dir)

    node.config.write_text(CONFIG + "limits:\n- {memory: 1Gi}\n- {memory: 8 bananas}\n")
    wait_until(lambda: "vgpu_config_reload_success 0.0" in metrics_page(node.run_dir))

    assert node.limit(pod).memory_limit_bytes == 8 * GIB
    node.config.write_text(CONFIG + "limits:\n- {memory: 1Gi}\n")
    wait_until(lambda: node.limit(pod).memory_limit_bytes == GIB)
    wait_until(lambda: "vgpu_config_reload_success 1.0" in metrics_page(node.run_dir))
    wait_until(lambda: 'pod="a"' in metrics_page(node.run_dir))
    text = metrics_page(node.run_dir)
    assert "vgpu_config_reload_success 1.0" in text
    for line in (
        f'vgpu_gpu_memory_allocated_bytes{{family="vgpu",gpu="{only_gpu(text)}"',
        'vgpu_container_memory_used_bytes{allocation="',
        'vgpu_container_gpu_seconds_total{allocation="',
        'vgpu_allocate_duration_seconds_count{resource="nvidia.com/vgpu-core"} 1.0',
        'vgpu_allocate_duration_seconds_count{resource="nvidia.com/mps-core"} 0.0',
    ):
        assert line in text, line


def only_gpu(text: str) -> str:
    line = next(x for x in text.splitlines() if x.startswith("vgpu_container_memory_limit_bytes{"))
    return line.partition('gpu="')[2].partition('"')[0]


def test_a_second_agent_and_a_wrong_config_do_not_start(node: InProcessNode) -> None:
    second = InProcessNode.__new__(InProcessNode)
    second.__dict__.update(node.__dict__)
    second.start_agent()
    second._thread.join(PATIENCE_S)  # type: ignore[union-attr]
    assert "another agent is running" in str(second.failure)

    node.stop_agent()
    (node.state_dir / kept_config.FILE).unlink()
    node.config.write_text(CONFIG.replace("[1, 2]", "[0, 1]"))
    node.start_agent()
    node._thread.join(PATIENCE_S)  # type: ignore[union-attr]
    assert isinstance(node.failure, ConfigError)
    assert "GPU 0 is already shared" in str(node.failure)


def test_a_kubelet_directory_too_deep_for_a_socket_is_refused(node: InProcessNode) -> None:
    node.stop_agent()
    node.kubelet_dir /= "x" * 90

    node.start_agent()
    node._thread.join(PATIENCE_S)  # type: ignore[union-attr]

    assert "the path of a Unix socket may have 107 bytes" in str(node.failure)


def test_the_checkpoint_names_every_holding_and_its_owner(node: InProcessNode) -> None:
    node.admit("a", {"vgpu-core": 10, "vgpu-memory": 1})

    def owners() -> list[str | None]:
        found = replay((node.state_dir / "checkpoint.json").read_bytes())
        return [each.owner.pod if each.owner else None for each in found.allocations]

    wait_until(lambda: owners() == ["a"])
