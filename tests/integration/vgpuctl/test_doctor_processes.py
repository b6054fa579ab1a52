"""`vgpuctl doctor` on what really runs in containers with a slice, and on who may look.

The programs have mapped what the loaders of such images map, and nothing else stands in for them.
"""

import contextlib
import json
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from benchmarks.simulated_cluster.kinds import LEASE
from deviceplugin.kube import inventory_lease
from deviceplugin.watch.process_attribution import place_of
from deviceplugin.watch.procfs import read_mounts
from support import warm
from support.api_server.cluster_server import ClusterServer
from support.node.doctor import Finding, doctor, of, put
from support.node.fake_proc import UID, FakeProc, mount_line, pod_path
from support.node.in_process import running_node
from support.node.watched import HOLD, Contained, WatchedNode, can_contain
from support.waiting import wait_until
from vgpuctl.agent_client import metrics_page
from vgpuctl.doctor.image_checks import needed_glibc

Start = Callable[..., WatchedNode]

#: A program without a C library's loader, which maps the files that it is told of.
MAPPER = """
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>
int main(int count, char **paths) {
    for (int n = 1; n < count; n++)
        if (mmap(0, 4096, PROT_READ, MAP_PRIVATE, open(paths[n], O_RDONLY), 0) == MAP_FAILED)
            return 1;
    printf("{\\"ready\\": %d}\\n", getpid());
    fflush(stdout);
    return getchar() == EOF;
}
"""


#: For tests of programs in namespaces of their own.
contained = pytest.mark.skipif(not can_contain(), reason="may not make namespaces")


@pytest.fixture
def start(short_path: Path) -> Iterator[Start]:
    """Returns ``start(**options)``, which makes the node of the test."""
    with contextlib.ExitStack() as made:
        yield lambda **options: made.enter_context(WatchedNode(short_path, **options))


@pytest.fixture(scope="module")
def mapper(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("mapper")
    source, program = folder / "mapper.c", folder / "mapper"
    source.write_text(MAPPER)
    built = ["gcc", "-static", str(source), "-o", str(program)]
    if subprocess.run(built, capture_output=True, check=False).returncode:
        pytest.skip("nothing can be linked statically here")
    return program


def run_on(node: WatchedNode, *options: str) -> list[Finding]:
    return doctor(node.base, *options, env=node.machine.environment(os.environ))


def ready(program: "subprocess.Popen[str]") -> None:
    assert program.stdout is not None
    assert program.stdout.readline(), program.stderr and program.stderr.read()


#: What the program of a pod has mapped; what is said of it and what to do, if anything.
IMAGES = {
    "alpine": (
        ("ld-musl-x86_64.so.1",),
        "its C library is musl (ld-musl-x86_64.so.1)",
        "one with glibc",
    ),
    "old": (
        ("libc-2.5.so",),
        "its glibc is 2.5, and this build of libvgpu.so needs 2.",
        "or newer",
    ),
    "odd": (("libc.so.6",), "its loader did not preload it", "/etc/ld.so.preload"),
    "static": (("libcuda.so.1",), "it is statically linked", "dynamically"),
    "no-gpu": ((), "", ""),
    "shim": (("libc.so.6", "libvgpu.so"), "", ""),
    "alpine-shim": (("ld-musl-x86_64.so.1", "libvgpu.so"), "", ""),
}


@contained
def test_images_in_which_the_shim_is_not(start: Start, mapper: Path, tmp_path: Path) -> None:
    node = start()
    for name in {name for files, _, _ in IMAGES.values() for name in files}:
        put(tmp_path, name, "x" * 4096)

    def admit(name: str) -> Contained:
        pod = node.contain(name, memory_gib=1, core=5)
        words = [str(tmp_path / file) for file in IMAGES[name][0]]
        ready(pod.spawn([str(mapper), *words], shim=False))
        return pod

    def found() -> list[Finding]:
        return of(run_on(node), "images")

    well = [admit(name) for name, (_, said, _) in IMAGES.items() if not said]
    (one,) = found()
    assert one["level"] == "ok" and "3 processes" in one["message"]
    ill = {name: admit(name) for name, (_, said, _) in IMAGES.items() if said}
    wait_until(lambda: all("default/" in each["message"] for each in found()), "pods are known")

    told = found()
    for name in ill:
        (one,) = (each for each in told if f"default/{name}/c:" in each["message"])
        _, said, fix = IMAGES[name]
        assert one["level"] == "warn"
        assert "(mapper) runs without libvgpu.so, so its limits do not hold" in one["message"]
        assert said in one["message"]
        assert fix in one["fix"]
    assert len(told) == len(ill)

    node.stop_agent()
    assert found() == told
    for pod in (*ill.values(), *well):
        pod.end()
    assert found() == []


@contained
def test_a_program_past_the_shim_and_one_with_it(start: Start) -> None:
    node = start()
    pod = node.contain("train")
    pod.start(HOLD, 1 << 20)
    assert [each["level"] for each in of(run_on(node), "images")] == ["ok"]

    pod.start(HOLD, 1 << 20, shim=False)

    (found,) = of(run_on(node), "images")
    assert found["level"] == "warn"
    assert "its loader did not preload it" in found["message"]


@contained
def test_a_program_for_a_later_cuda_than_the_drivers(
    start: Start, mapper: Path, tmp_path: Path
) -> None:
    node = start()
    pod = node.contain("new")

    def found(*names: str) -> list[Finding]:
        """What is said while a program has these files mapped."""
        pod.end()
        for name in names:
            put(tmp_path, name, "x" * 4096)
        ready(pod.spawn([str(mapper), *(str(tmp_path / name) for name in names)], shim=False))
        return of(run_on(node), "cuda")

    for file in ("libcudart.so.14.0.48", "libcudart-9335f6a2.so.14.1.105"):
        (one,) = found(file)
        assert f"with CUDA 14 ({file}), and the driver has CUDA 13.0" in one["message"]
        assert one["fix"].startswith("install a driver with CUDA 14.0 or newer")
        assert found(file, "compat/libcuda.so.1") == []
    for file in ("libcudart.so.13", "libcudart.so.12.4.127"):
        assert found(file) == []


@contained
def test_cgroups_that_name_no_pod_and_such_that_do(start: Start, tmp_path: Path) -> None:
    node = start()
    pod = node.contain("train")
    pod.start(HOLD, 1 << 20)  # in no pod's cgroup, as the stand-in for a runtime makes it

    (found,) = of(run_on(node), "cgroups")
    assert found["level"] == "warn"
    assert "names no pod in a form that the agent reads (1 of 1 processes)" in found["message"]

    # The same container as a kubelet makes it, in a /proc of the test's own.
    proc = FakeProc(tmp_path / "proc")
    limits = mount_line(*_place(pod.directory / "limits"))
    tree = "30 23 0:26 / /sys/fs/cgroup rw shared:4 - {} cgroup rw\n"
    proc.put(1, mounts=tree.format("cgroup2"))
    proc.put(70, cgroup=pod_path(UID), mounts=limits, maps="")
    (found,) = of(run_on(node, f"--host-root={tmp_path}"), "cgroups")
    assert (found["level"], found["message"]) == (
        "ok",
        "cgroups v2: those of 1 processes name their pod",
    )
    proc.put(1, mounts=tree.format("cgroup"))
    proc.put(70, cgroup="/docker/7f", mounts=limits, maps="")
    (found,) = of(run_on(node, f"--host-root={tmp_path}"), "cgroups")
    assert found["level"] == "warn"
    assert "cgroups v1: that of process 70 (worker) of " in found["message"]
    assert "/docker/7f, names no pod" in found["message"]


def _place(path: Path) -> tuple[str, str, str]:
    """Returns what a container's mount of a file looks like: source, target, device."""
    found = place_of(read_mounts("self"), os.path.realpath(path))
    assert found is not None
    return found[1], "/run/vgpu/limits", found[0]


def test_an_mps_daemon_in_a_pod(start: Start, tmp_path: Path) -> None:
    node = start()
    FakeProc(tmp_path / "proc").put(1)
    FakeProc(tmp_path / "proc").put(80, command="nvidia-cuda-mps", cgroup=pod_path(UID))

    (found,) = of(run_on(node, f"--host-root={tmp_path}"), "mps")

    assert f"process 80, of the pod with UID {UID}" in found["message"]
    assert f"grep {UID}" in found["fix"]


@contained
def test_an_agent_without_the_nodes_pids(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    own_pids = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"]
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
    node = start(prefix=own_pids)
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST")

    (found,) = of(run_on(node), "pids")

    assert found["level"] == "warn"
    assert "it cannot tell whose processes use a GPU" in found["message"]
    assert '{"hostPID":true}' in found["fix"]
    node.stop_agent()
    node.start_agent()  # as a program of the node itself
    assert of(run_on(node), "pids") == []


def test_an_agent_that_cannot_publish(
    server: ClusterServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inventory_lease, "BACKOFF_MOST_S", 0.2)
    server.label_node("test-node")
    server.be_found(monkeypatch)
    with running_node(monkeypatch) as node:

        def found() -> list[Finding]:
            done = warm.run(
                ["-m", "vgpuctl", "doctor", "-o", "json",
                 f"--run-dir={node.run_dir}", f"--state-dir={node.state_dir}",
                 f"--kubelet-dir={node.kubelet_dir}"],
                os.environ,
            )  # fmt: skip
            return of(json.loads(done.stdout), "published")

        wait_until(lambda: server.all(LEASE))
        assert found() == []
        assert "vgpu_inventory_published 1.0" in metrics_page(node.run_dir)
        server.stop()
        node.admit("p", {"vgpu-core": 10, "vgpu-memory": 1})
        (one,) = wait_until(found)
        assert one["level"] == "warn"
        assert "schedulers use the previous one" in one["message"]
        assert "kubectl auth can-i patch leases" in one["fix"]
        assert "vgpu_inventory_published 0.0" in metrics_page(node.run_dir)
        server.start()
        wait_until(lambda: not found())


#: Becomes somebody else once all is imported, since that user may not reach this Python.
AS_NOBODY = """
import os, sys
import pynvml
from vgpuctl.__main__ import main
os.setgroups([]); os.setgid(65534); os.setuid(65534)
sys.exit(main(sys.argv[1:]))
"""


@contained
def test_an_ordinary_user_is_told_what_needs_root(start: Start) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can become another user")
    node = start()
    pod = node.contain("train")
    pod.start(HOLD, 1 << 20)
    node.base.chmod(0o755)
    places = [f"--{n}-dir={node.base / n[0]}" for n in ("run", "state", "kubelet")]

    def found() -> dict[str, Finding]:
        words = ["-c", AS_NOBODY, "doctor", "-o", "json", *places]
        done = warm.run(words, node.machine.environment(os.environ), like="vgpuctl")
        assert done.stderr == ""
        return {each["check"]: each for each in json.loads(done.stdout)}

    up = found()
    node.stop_agent()
    down = found()

    for name in ("agent", "shim", "leftovers"):
        assert up[name]["level"] == "warn", up[name]
        assert "sudo vgpuctl doctor" in up[name]["fix"]
    assert "sudo vgpuctl doctor" in down["kept-config"]["fix"]
    assert up["driver"]["level"] == "ok"


def test_what_a_build_needs_of_glibc() -> None:
    names = [b"", b"GLIBC_2.2.5", b"GLIBC_2.17", b"GLIBC_2.34", b"XGLIBC_2.99", b""]
    assert needed_glibc(b"\0".join(names)) == 34
    assert needed_glibc(b"nothing") == 0
