"""Where a node's driver is found: roots that lie elsewhere, links, containers, simulations."""

import os
from pathlib import Path

import pytest

from deviceplugin.cdi.driver_files import DriverFiles, find_driver_files, library_directories
from deviceplugin.cdi.node_driver import NodeDriver
from deviceplugin.cdi.trees import NodeRoot, Tree, node_root
from deviceplugin.model.device_forms import DeviceForms, Feature

LIB = "usr/lib/x86_64-linux-gnu"
MACHINE = os.uname().machine
OWN_LIB = f"usr/lib/{MACHINE}-linux-gnu"


def put(root: Path, name: str) -> Path:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"x")
    return path


def install(root: Path, version: str = "535.104.05", directory: str = LIB) -> None:
    """A driver as its installer and ldconfig leave it."""
    for name, soname in (("cuda", "1"), ("nvidia-ml", "1"), ("nvidia-nvvm", "4")):
        put(root, f"{directory}/lib{name}.so.{version}")
        (root / directory / f"lib{name}.so.{soname}").symlink_to(f"lib{name}.so.{version}")
    (root / directory / "libcuda.so").symlink_to("libcuda.so.1")
    put(root, f"{directory}/libc.so.6")
    put(root, f"{directory}/libnvidia-old.so.470.1")
    put(root, "usr/bin/nvidia-smi")
    put(root, f"lib/firmware/nvidia/{version}/gsp_ga10x.bin")
    put(root, f"lib/firmware/nvidia/{version}/notes.txt")


def found_in(tree: Tree) -> DriverFiles:
    found = find_driver_files(tree, library_directories(tree, "x86_64"))
    assert found is not None
    return found


# ---- a tree that lies elsewhere ------------------------------------------------------------------


def test_absolute_links_stay_in_the_tree(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    put(tmp_path, "run/cdi/a.json")
    (tmp_path / "var").mkdir()
    (tmp_path / "var/run").symlink_to("/run")
    tree = Tree(str(tmp_path))

    assert tree.real("/var/run/cdi/a.json") == "/run/cdi/a.json"
    assert tree.at("/var/run/cdi") == f"{tmp_path}/run/cdi"
    assert tree.names("/var/run/cdi") == ["a.json"]


def test_links_never_leave_the_tree(tmp_path: Path) -> None:
    (tmp_path / "out").symlink_to("../../../../etc/passwd")
    (tmp_path / "loop").symlink_to("loop")
    tree = Tree(str(tmp_path))

    assert tree.at("/out") == f"{tmp_path}/etc/passwd"
    assert tree.text("/out") is None
    assert tree.real("/loop") == "/loop"


def test_a_tree_below_knows_both_of_its_names(tmp_path: Path) -> None:
    put(tmp_path, "run/nvidia/driver/etc/os-release")

    below = Tree(str(tmp_path)).below("/run/nvidia/driver")

    assert below.on_host("/usr/bin/nvidia-smi") == "/run/nvidia/driver/usr/bin/nvidia-smi"
    assert below.text("/etc/os-release") == "x"


def test_the_nodes_root_is_that_of_its_first_process(tmp_path: Path) -> None:
    (tmp_path / "root").symlink_to("/usr")

    assert node_root("", {}, str(tmp_path / "root")).tree.seen == str(tmp_path / "root")
    assert node_root("/host/", {}).tree == Tree("/host")


@pytest.mark.parametrize(
    ("environ", "is_seen"), [({}, True), ({"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, False)]
)
def test_an_agent_that_sees_only_its_own_root_knows(
    tmp_path: Path, environ: dict[str, str], is_seen: bool
) -> None:
    (tmp_path / "same").symlink_to("/")

    for place in ("same", "missing"):
        assert node_root("", environ, str(tmp_path / place)) == NodeRoot(is_seen=is_seen)


# ---- the driver in a tree ------------------------------------------------------------------------


def test_all_libraries_of_the_version_are_found_with_their_names(tmp_path: Path) -> None:
    install(tmp_path)

    found = found_in(Tree(str(tmp_path)))

    assert found.version == "535.104.05"
    by_path = {library.path: library for library in found.libraries}
    assert by_path.keys() == {
        f"/{LIB}/lib{name}.so.535.104.05" for name in ("cuda", "nvidia-ml", "nvidia-nvvm")
    }
    cuda = by_path[f"/{LIB}/libcuda.so.535.104.05"]
    assert cuda.names == ("libcuda.so", "libcuda.so.1", "libcuda.so.535.104.05")
    assert cuda.host_path == f"/{LIB}/libcuda.so.535.104.05"
    assert found.binaries == (("nvidia-smi", "/usr/bin/nvidia-smi"),)
    firmware = "/lib/firmware/nvidia/535.104.05/gsp_ga10x.bin"
    assert found.firmware == ((firmware, firmware),)


@pytest.mark.parametrize(
    "name", ["nvcuvid", "nvoptix", "EGL_nvidia", "GLESv2_nvidia", "nvidia-nvvm70", "cudadebugger"]
)
def test_libraries_for_video_and_graphics_are_of_the_driver_too(tmp_path: Path, name: str) -> None:
    install(tmp_path)
    put(tmp_path, f"{LIB}/lib{name}.so.535.104.05")
    (tmp_path / LIB / f"lib{name}.so.1").symlink_to(f"lib{name}.so.535.104.05")

    found = {library.path: library.names for library in found_in(Tree(str(tmp_path))).libraries}

    assert f"lib{name}.so.1" in found[f"/{LIB}/lib{name}.so.535.104.05"]


def test_a_driver_in_a_container_has_its_own_root_on_the_node(tmp_path: Path) -> None:
    install(tmp_path)

    found = found_in(Tree(str(tmp_path), "/run/nvidia/driver"))

    assert found.libraries[0].path == f"/{LIB}/libcuda.so.535.104.05"
    assert found.libraries[0].host_path == f"/run/nvidia/driver/{LIB}/libcuda.so.535.104.05"
    assert found.binaries == (("nvidia-smi", "/run/nvidia/driver/usr/bin/nvidia-smi"),)


def test_alternatives_are_followed(tmp_path: Path) -> None:
    """As Debian's packages do it: links by way of /etc."""
    install(tmp_path, directory=f"{LIB}/nvidia/current")
    (tmp_path / "etc/alternatives").mkdir(parents=True)
    (tmp_path / "etc/alternatives/cuda").symlink_to(f"/{LIB}/nvidia/current/libcuda.so.1")
    (tmp_path / LIB / "libcuda.so.1").symlink_to("/etc/alternatives/cuda")

    found = found_in(Tree(str(tmp_path)))

    assert f"/{LIB}/nvidia/current/libcuda.so.535.104.05" in {lib.path for lib in found.libraries}
    assert len(found.libraries) == 3


def test_the_loaders_config_names_more_directories(tmp_path: Path) -> None:
    install(tmp_path, directory="opt/nvidia/lib64")
    put(tmp_path, "etc/ld.so.conf.d/nvidia.conf").write_text("# ours\n/opt/nvidia/lib64  # more\n")
    put(tmp_path, "opt/nvidia/bin/nvidia-cuda-mps-control")

    found = found_in(Tree(str(tmp_path)))

    assert found.version == "535.104.05"
    assert ("nvidia-cuda-mps-control", "/opt/nvidia/bin/nvidia-cuda-mps-control") in found.binaries


def test_a_link_that_a_removed_driver_left_is_no_driver(tmp_path: Path) -> None:
    install(tmp_path)
    (tmp_path / LIB / "libcuda.so.535.104.05").unlink()
    tree = Tree(str(tmp_path))

    assert find_driver_files(tree, library_directories(tree, "x86_64")) is None


def test_libraries_without_a_version_are_nvidias_sonames(tmp_path: Path) -> None:
    for name in ("libcuda.so.1", "libnvidia-ml.so.1", "libfoo.so.1", "libcudart.so.12"):
        put(tmp_path, f"sim/{name}")

    found = find_driver_files(Tree(str(tmp_path)), ["/sim"])

    assert found is not None
    assert found.version == ""
    assert [library.names for library in found.libraries] == [
        ("libcuda.so.1",),
        ("libnvidia-ml.so.1",),
    ]


# ---- the driver of a node ------------------------------------------------------------------------


def on_node(root: Path, forms: DeviceForms | None = None, **more: object) -> NodeDriver:
    return NodeDriver(forms or DeviceForms(), NodeRoot(Tree(str(root))), {}, **more)  # type: ignore[arg-type]


def test_a_driver_in_a_directory_of_its_own_is_found(tmp_path: Path) -> None:
    """As Google's installer leaves it, with ``lib64`` and ``bin`` right below."""
    root = "/home/kubernetes/bin/nvidia"
    install(tmp_path, "580.65.06", f"{root[1:]}/lib64")
    put(tmp_path, f"{root[1:]}/bin/nvidia-smi")
    (tmp_path / "dev").mkdir()
    put(tmp_path, "dev/nvidiactl")
    driver = on_node(tmp_path, DeviceForms(driver_root=root, dev_root=root))

    found = driver.files()

    assert found is not None
    assert found.version == "580.65.06"
    assert f"{root}/lib64/libcuda.so.580.65.06" in {each.host_path for each in found.libraries}
    assert found.binaries == (("nvidia-smi", f"{root}/bin/nvidia-smi"),)
    assert driver.devices().root == "/"  # its device nodes are the node's all the same


def test_the_root_that_the_agent_sees_comes_first(tmp_path: Path) -> None:
    install(tmp_path / "host", "1.1", OWN_LIB)
    install(tmp_path / "seen", "2.2", OWN_LIB)
    forms = DeviceForms(
        driver_root="/run/nvidia/driver", container_driver_root=str(tmp_path / "seen")
    )

    found = on_node(tmp_path / "host", forms).files()

    assert found is not None
    assert found.libraries[0].host_path == f"/run/nvidia/driver/{OWN_LIB}/libcuda.so.2.2"


def test_the_operators_driver_is_found_without_being_named(tmp_path: Path) -> None:
    install(tmp_path / "run/nvidia/driver", directory=OWN_LIB)

    found = on_node(tmp_path).files()

    assert found is not None
    assert found.libraries[0].host_path.startswith(f"/run/nvidia/driver/{OWN_LIB}/")


def test_on_a_simulated_machine_the_libraries_are_those_that_are_loaded(tmp_path: Path) -> None:
    put(tmp_path, "lib/libcuda.so.1")
    put(tmp_path, "lib/libnvidia-ml.so.1")
    install(tmp_path / "host", directory=OWN_LIB)
    put(tmp_path, "proc/self/maps").write_text(
        f"7f00-7f01 r-xp 0 08:01 1    {tmp_path}/lib/libnvidia-ml.so.1\n"
        "7f02-7f03 rw-p 0 0 0 [heap]\n"
    )
    driver = NodeDriver(
        DeviceForms(),
        NodeRoot(Tree(str(tmp_path / "host"))),
        {"VGPU_SIM_MACHINE": "/tmp/machine"},
        tmp_path / "proc",
    )

    found = driver.files()

    assert found is not None
    assert found.libraries[0].host_path == f"{tmp_path}/lib/libcuda.so.1"
    assert driver.simulated == "/tmp/machine"
    assert not driver.devices().is_loaded


def test_no_driver_is_none(tmp_path: Path) -> None:
    assert on_node(tmp_path).files() is None


def test_nodes_are_looked_for_below_the_root_that_has_them(tmp_path: Path) -> None:
    put(tmp_path, "dev/nvidiactl")
    put(tmp_path, "proc/driver/nvidia/version")
    put(tmp_path, "proc/driver/nvidia-caps/mig-minors").write_text("gpu0/gi1/access 3\n")

    found = on_node(tmp_path, DeviceForms(dev_root="/gone"), proc=tmp_path / "proc").devices()

    assert (found.root, found.is_loaded) == ("/", True)
    assert found.exists("/dev/nvidiactl")
    assert found.mig_minors == {(0, 1, None): 3}


def test_nodes_asked_for_in_addition_are_those_that_exist(tmp_path: Path) -> None:
    for name in (
        "gdrdrv",
        "nvidia-fs0",
        "infiniband/uverbs0",
        "infiniband/rdma_cm",
        "infiniband/issm0",
        "nvidia-caps-imex-channels/channel0",
    ):
        put(tmp_path, f"dev/{name}")

    def more(features: tuple[Feature, ...], channels: tuple[int, ...] = ()) -> tuple[str, ...]:
        forms = DeviceForms(features=features, imex_channels=channels)
        return on_node(tmp_path, forms).devices().more

    assert more(()) == ()
    assert more((Feature.GDRCOPY, Feature.GDS)) == ("/dev/gdrdrv", "/dev/nvidia-fs0")
    assert more((Feature.MOFED,)) == ("/dev/infiniband/rdma_cm", "/dev/infiniband/uverbs0")
    assert more((), (0, 1)) == ("/dev/nvidia-caps-imex-channels/channel0",)


@pytest.mark.parametrize(
    ("there", "named", "expected"),
    [
        ((), "", ""),
        ((), "/opt/nvidia-ctk", ""),
        (("usr/bin/nvidia-ctk",), "", "/usr/bin/nvidia-ctk"),
        (("usr/bin/nvidia-ctk", "usr/bin/nvidia-cdi-hook"), "", "/usr/bin/nvidia-cdi-hook"),
        (("usr/local/nvidia/toolkit/nvidia-ctk",), "", "/usr/local/nvidia/toolkit/nvidia-ctk"),
        (("opt/nvidia-ctk", "usr/bin/nvidia-ctk"), "/opt/nvidia-ctk", "/opt/nvidia-ctk"),
    ],
)
def test_nvidias_hook_is_used_where_the_node_has_it(
    tmp_path: Path, there: tuple[str, ...], named: str, expected: str
) -> None:
    for name in there:
        put(tmp_path, name)

    assert on_node(tmp_path, DeviceForms(hook_path=named)).hook() == expected
