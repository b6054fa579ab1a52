"""What `ps` and `status` show besides, and which rows."""

import io
import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from libvgpu.limits import DeviceLimit
from libvgpu.sim import PROFILES, Machine
from libvgpu.slices import read_slices
from support.made_slices import make_slice
from vgpuctl.__main__ import main
from vgpuctl.cluster.listing import NODE_COLUMN, of_node
from vgpuctl.commands import ps, status
from vgpuctl.commands.status import fragmentation
from vgpuctl.fitting import width
from vgpuctl.node_gpus import seen_gpus
from vgpuctl.observe import GpuState, gpu_rows, process_rows
from vgpuctl.render import Row, print_listing

GIB = 1 << 30
Shown = pytest.CaptureFixture[str]


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    """Two GPUs of this user's, which no driver lists."""
    monkeypatch.setattr("vgpuctl.gpu_choice.named.machines_root", lambda: tmp_path / "machines")
    return Machine.create([PROFILES["t4"], PROFILES["t4"]], tmp_path / "machines" / "box")


@pytest.fixture
def run_dir(tmp_path: Path, machine: Machine) -> Path:
    run_dir = tmp_path / "run"
    run_dir.mkdir(mode=0o700)
    first, second = (device.uuid for device in machine.devices)
    for number, (namespace, uuid, core) in enumerate(
        (("team-a", first, 60), ("team-a", second, 30), ("team-b", second, 20))
    ):
        limit = DeviceLimit(uuid, 4 * GIB, core_percent=core, unaccounted_bytes=number << 20)
        who: dict[str, Any] = {"namespace": namespace, "pod": f"pod-{number}", "container": "main"}
        make_slice(run_dir, f"{number:012x}", limit, **who)
    return run_dir


def rows(shown: Shown, *arguments: str) -> list[dict[str, Any]]:
    assert main([*arguments, "-o", "json"]) == 0
    return list(json.loads(shown.readouterr().out))


@pytest.mark.parametrize(
    ("options", "pods"),
    [
        ([], ["pod-0", "pod-1", "pod-2"]),
        (["-n", "team-a"], ["pod-0", "pod-1"]),
        (["--pod", "pod-2"], ["pod-2"]),
        (["--gpu", "1"], ["pod-1", "pod-2"]),
        (["--gpu", "1", "-n", "team-a"], ["pod-1"]),
        (["-n", "nobody"], []),
    ],
)
def test_ps_shows_the_rows_that_are_wanted(
    run_dir: Path, capsys: Shown, options: list[str], pods: list[str]
) -> None:
    found = rows(capsys, "ps", "--run-dir", str(run_dir), *options)
    assert [row["pod"] for row in found] == pods


def test_ps_takes_the_beginning_of_a_uuid(run_dir: Path, machine: Machine, capsys: Shown) -> None:
    uuid = machine.devices[0].uuid
    found = rows(capsys, "ps", "--run-dir", str(run_dir), "--gpu", uuid[:14])
    assert [row["gpu_uuid"] for row in found] == [uuid]


def test_ps_names_the_gpus_where_an_index_is_none(run_dir: Path, capsys: Shown) -> None:
    assert main(["ps", "--run-dir", str(run_dir), "--gpu", "7"]) == 2
    assert "'7' is not a GPU of this node; there are: 0, 1" in capsys.readouterr().err


def test_ps_shows_more_columns_where_they_are_wanted(
    run_dir: Path, machine: Machine, capsys: Shown
) -> None:
    assert main(["ps", "--run-dir", str(run_dir), "-w"]) == 0
    shown = capsys.readouterr().out
    assert machine.devices[1].uuid in shown
    for title in ("GPU UUID", "PEAK", "UNACCOUNTED", "COMPUTE", "SINCE"):
        assert title in shown
    assert main(["ps", "--run-dir", str(run_dir)]) == 0
    assert "UNACCOUNTED" not in capsys.readouterr().out


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("node", ["ip-10-0-12-34.eu-central-1.compute.internal", "n" * 63])
@pytest.mark.parametrize(
    "verb", ["ps", "ps -w", "status", "kubectl vgpu ps", "kubectl vgpu status"]
)
def test_a_listing_fits_every_terminal(
    run_dir: Path, monkeypatch: pytest.MonkeyPatch, verb: str, node: str
) -> None:
    """No line is longer than the terminal, no row takes two, and no heading and no id is cut."""
    slices = read_slices(run_dir)
    columns = (*ps.COLUMNS, *(ps.WIDE if verb == "ps -w" else ()))
    listed: list[Row] = [*process_rows(slices)]
    first, second = (dict(row) for row in listed[:2])
    first |= {"pod": "inference-server-7d9f8b6c5-x2x4k", "memory_used_bytes": 3 * GIB + 12345678}
    first |= {"pending": ["memory"], "refused_count": 12, "share_percent": 29.9}
    second |= {
        "pod": None,
        "command": ["python", "-m", "torch.distributed.run"],
        "shared_memory": 1,
    }
    listed = [first, second, *listed[2:]]
    if "status" in verb:
        listed = [*gpu_rows(seen_gpus()[0], slices, lambda uuid: GpuState("", ""))]
        columns = status.COLUMNS
    if "kubectl" in verb:
        listed = of_node(node, listed)
        columns = (NODE_COLUMN, *columns)
    titles, shown_at = [column.title for column in columns], {}
    for most in range(44, 361):
        monkeypatch.setenv("COLUMNS", str(most))
        out = Terminal()
        print_listing(listed, columns, "table", "", out)
        heading, *lines = out.getvalue().splitlines()
        heading = re.sub(r"\x1b\[\d*m", "", heading)
        assert max(map(width, [heading, *lines])) <= most
        assert len(lines) == len(listed)
        shown_at[most] = re.split(r"  +", heading.strip())
        assert [title for title in titles if title in shown_at[most]] == shown_at[most]
        for line, row in zip(lines, listed, strict=True):
            assert str(row.get("allocation", "")) in line
    assert shown_at[360] == titles
    must = {"GPU", "ALLOCATED", "CORE"} if "status" in verb else {"ALLOCATION", "POD OR COMMAND"}
    assert must <= set(shown_at[60])
    assert "kubectl" in verb or {"MEMORY", "CORE"} <= set(shown_at[60])


def test_sentences_below_a_listing_end_their_lines_with_a_word(
    run_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setattr(sys, "stderr", Terminal())
    assert main(["status", "--run-dir", str(run_dir)]) == 0
    assert isinstance(sys.stderr, Terminal)
    assert sys.stderr.getvalue().endswith(
        "vgpuctl: vgpu: free are 90 core and 18\n"
        "GiB on 2 GPUs, at most 50 core and 11\nGiB on one\n"
    )


def test_status_tells_what_is_free_and_unaccounted(run_dir: Path, capsys: Shown) -> None:
    first, second = rows(capsys, "status", "--run-dir", str(run_dir))
    assert (first["core_free_percent"], second["core_free_percent"]) == (40, 50)
    assert second["memory_unaccounted_bytes"] == 3 << 20
    assert second["memory_free_bytes"] == second["memory_total_bytes"] - 8 * GIB
    assert (second["modes"], second["health"]) == (["none"], None)


def test_status_says_what_fits_one_gpu_at_most(run_dir: Path, capsys: Shown) -> None:
    assert main(["status", "--run-dir", str(run_dir)]) == 0
    shown = capsys.readouterr()
    assert "vgpu: free are 90 core" in shown.err
    assert "at most 50 core" in shown.err
    assert "HEALTH" in shown.out


def test_families_are_not_mixed_up() -> None:
    def row(family: str, core: int, memory: int) -> dict[str, object]:
        return {"family": family, "core_free_percent": core, "memory_free_bytes": memory * GIB}

    assert fragmentation([row("vgpu", 10, 1), row("mps", 70, 9), row("vgpu", 5, 3)]) == [
        "vgpu: free are 15 core and 4 GiB on 2 GPUs, at most 10 core and 3 GiB on one",
        "mps: free are 70 core and 9 GiB on 1 GPU, at most 70 core and 9 GiB on one",
    ]
    assert fragmentation([row("", 100, 80)]) == []
