"""`mpsRoot`: daemons whose pipes and logs are elsewhere, and clients that reach them."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from deviceplugin.store.mps_paths import pipe_directory
from libvgpu.artifacts import SIM_LIBRARY_DIR
from libvgpu.sim import PROFILES, Machine
from support import Compile
from support.node.mps_cluster import Cluster, running_cluster
from support.node.mps_node import MpsNode
from support.waiting import PATIENCE_S, wait_until


@pytest.fixture
def program(compile_program: Compile) -> Path:
    return compile_program("mps_steady.c", flags=(f"-L{SIM_LIBRARY_DIR}", "-l:libcuda.so.1"))


@pytest.fixture
def node(tmp_path: Path, program: Path) -> Iterator[MpsNode]:
    machine = Machine.create([PROFILES["h100-80g"]], tmp_path / "machine")
    made = MpsNode(machine, tmp_path, program)
    try:
        yield made
    finally:
        made.close()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    # Longer than a socket's path may be: the daemon never sees it.
    return tmp_path / ("x" * 120) / "mps"


def test_a_client_reaches_a_daemon_whose_files_are_elsewhere(node: MpsNode, root: Path) -> None:
    node.start_runner(f"--mps-root={root}")
    node.wait_phase()
    assert (root / node.uuids[0] / "pipe" / "control").is_socket()
    assert (root / node.uuids[0] / "log").is_dir()
    assert node.client().works()


def test_a_daemon_moves_once_the_slices_of_its_gpu_have_ended(node: MpsNode, root: Path) -> None:
    node.want(0)
    node.start_runner()
    before = node.wait_phase()
    client, pipe = node.client(), pipe_directory(node.run_dir, node.uuids[0])

    node.want(0, root=str(root))

    wait_until(lambda: "stays where it is until the slices" in node.said(), "it says so")
    assert client.works()
    assert node.gpu().daemon == before.daemon
    assert not pipe.parent.is_symlink()
    client.end()
    node.want(0, occupied=False, root=str(root))
    wait_until(lambda: pipe.parent.is_symlink() and node.gpu().phase == "ready", "it has moved")
    assert node.gpu().daemon != before.daemon
    assert node.client().works()


def test_the_next_runner_adopts_a_daemon_that_is_elsewhere(node: MpsNode, root: Path) -> None:
    node.want(0, root=str(root))
    first = node.start_runner()
    before = node.wait_phase()
    client = node.client()
    first.kill()
    first.wait(PATIENCE_S)
    node.start_runner()
    wait_until(lambda: "MPS daemon adopted" in node.said(), "it is adopted")
    assert node.wait_phase().daemon == before.daemon
    assert client.works()


def test_a_bad_root_ends_the_runner_with_a_sentence(node: MpsNode) -> None:
    runner = node.start_runner("--mps-root=mps")
    assert runner.wait(PATIENCE_S) == 1
    assert "the MPS root is 'mps', allowed is an absolute path" in node.said()
    runner = node.start_runner(f"--mps-root={node.run_dir / 'mps'}")
    assert runner.wait(PATIENCE_S) == 1
    assert f"which lies in {node.run_dir}, where agent or kubelet keep files" in node.said()


@pytest.mark.parametrize(
    ("option", "variable", "expected"),
    [
        ("", "", "by-file"),
        ("", "by-variable", "by-variable"),
        ("by-option", "by-variable", "by-option"),
    ],
)
def test_the_command_line_counts_most_and_the_file_least(
    node: MpsNode, option: str, variable: str, expected: str
) -> None:
    config = node.base / "config.yaml"
    config.write_text(f"{config.read_text()}flags: {{mpsRoot: {node.base}/by-file}}\n")
    options = [f"--mps-root={node.base}/{option}"] if option else []
    node.start_runner(
        *options, environment={"MPS_ROOT": f"{node.base}/{variable}" if variable else ""}
    )
    node.wait_phase()
    assert {each.name for each in node.base.glob("by-*")} == {expected}
    assert (node.base / expected / node.uuids[0] / "pipe" / "control").is_socket()


def test_an_empty_option_means_the_run_directory_whatever_the_file_says(node: MpsNode) -> None:
    """As any flag of the agent's that is given; an empty variable says nothing."""
    config = node.base / "config.yaml"
    config.write_text(f"{config.read_text()}flags: {{mpsRoot: {node.base}/by-file}}\n")
    node.start_runner("--mps-root=")
    node.wait_phase()
    assert not (node.base / "by-file").exists()
    assert not pipe_directory(node.run_dir, node.uuids[0]).parent.is_symlink()


def test_a_config_with_a_root_among_our_own_files_is_none(node: MpsNode) -> None:
    config = node.base / "config.yaml"
    config.write_text(f"{config.read_text()}flags: {{mpsRoot: {node.run_dir / 'mps'}}}\n")
    assert node.start_runner().wait(PATIENCE_S) != 0
    assert f"line 5: flags.mpsRoot is '{node.run_dir / 'mps'}', which lies in" in node.said()


@pytest.fixture
def cluster(compile_program: Compile) -> Iterator[Cluster]:
    with running_cluster(compile_program, "mps") as cluster:
        yield cluster


def test_a_pods_answer_is_the_same_wherever_the_files_are(cluster: Cluster, tmp_path: Path) -> None:
    """The kubelet keeps an answer for ever, so it must not name the root."""
    pods = [cluster.admit("before", 30, 8)]
    config = cluster.base / "config.yaml"
    config.write_text(f"{config.read_text()}flags: {{mpsRoot: {tmp_path / 'root'}}}\n")
    unused = cluster.uuids[1]
    wait_until(
        lambda: (tmp_path / "root" / unused / "pipe").is_dir(), "the GPU without slices has moved"
    )
    pods.append(cluster.admit("after", 80, 8))
    programs = [cluster.run(cluster.begin(pod)) for pod in pods]
    assert all(program.works() for program in programs)


def test_an_edit_that_names_a_directory_of_ours_changes_nothing(cluster: Cluster) -> None:
    pod = cluster.admit("before", 30, 8)
    client = cluster.run(cluster.begin(pod))
    config, log = cluster.base / "config.yaml", cluster.base / "agent.log"
    for place in (cluster.run_dir / "mps", cluster.base / "s", cluster.base / "k"):
        cluster.share(range(2), rules=f"flags: {{mpsRoot: {place}}}\n")
        says = f"line 5: flags.mpsRoot is '{place}', which lies in"
        wait_until(lambda says=says: says in log.read_text(), "it is refused")  # type: ignore[misc]
    assert log.read_text().count("config rejected, the last good one stays") == 3
    assert config.read_text().count("mpsRoot") == 1
    assert client.works()
    assert cluster.run(cluster.begin(cluster.admit("after", 30, 8))).works()
    assert all(not (cluster.run_dir / "mps" / uuid).is_symlink() for uuid in cluster.uuids)
