"""What the agent survives and follows: restarts, failed pods, an edited config file."""

import logging

import pytest

from deviceplugin.store import kept_config
from libvgpu import allocation_dirs
from libvgpu.errors import ConfigError
from libvgpu.limits import ComputeMode
from support.node.in_process import CONFIG, GIB, InProcessNode, only_device
from support.waiting import PATIENCE_S, wait_until
from vgpuctl.agent_client import agent_report, metrics_page

pytestmark = pytest.mark.usefixtures("in_world")


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


def test_an_edited_rule_holds_in_the_running_container_within_a_second_and_a_bad_one_never(
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

    node.config.write_text(CONFIG + "limits:\n- {memory: 1Gi}\n- {memory: 8 bananas}\n")
    wait_until(lambda: "8 bananas" in (agent_report(node.run_dir).config.error or ""))
    assert "vgpu_config_reload_success 0.0" in metrics_page(node.run_dir)
    assert only_device(directory) == after


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
