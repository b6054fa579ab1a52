"""Every name that Kubernetes allows has a socket of its own, below any directory of the kubelet."""

from pathlib import Path

import pytest

from deviceplugin.kubelet.socket_names import SOCKET_PATH_BYTES, check_directory, socket_path
from libvgpu.errors import UsageError

USUAL = Path("/var/lib/kubelet/device-plugins")
LONG = "g" * 62


def test_a_name_that_fits_is_the_sockets() -> None:
    assert socket_path("nvidia.com/gpu", USUAL) == USUAL / "nvidia.com-gpu.sock"


@pytest.mark.parametrize("characters", [len("/kubelet.sock"), 14, 18, 19, 31, 60])
def test_every_resource_has_a_path_of_its_own_that_can_be_served(characters: int) -> None:
    directory = Path("/" + "d" * (SOCKET_PATH_BYTES - characters - 1))
    check_directory(directory)
    names = [
        *(f"nvidia.com/{half}" for half in ("vgpu-core", "vgpu-memory", "mps-core", "mps-memory")),
        *(f"nvidia.com/{LONG}{end}" for end in "abc"),
        f"{'long.' * 48}com/gpu",
        f"{'long.' * 48}com/gpv",
    ]
    paths = [socket_path(name, directory) for name in names]

    assert len(set(paths)) == len(names)
    for path in paths:
        assert path.parent == directory
        assert path.suffix == ".sock"
        assert len(str(path)) <= SOCKET_PATH_BYTES
        assert path.name != "kubelet.sock"


def test_a_directory_without_room_for_the_kubelets_own_socket_is_refused() -> None:
    with pytest.raises(UsageError, match="1 bytes too long"):
        check_directory(Path("/" + "d" * (SOCKET_PATH_BYTES - len("/kubelet.sock"))))
