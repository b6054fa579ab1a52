"""The `hooks` figure measures the real shim on the null driver, and any other next to it."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from benchmarks import __main__ as command
from benchmarks import hooks
from libvgpu import artifacts
from support.waiting import PATIENCE_S

if not artifacts.SHIM_PATH.exists():
    pytest.skip("libvgpu.so is not built (make build)", allow_module_level=True)
if shutil.which("cc") is None:
    pytest.skip("there is no C compiler", allow_module_level=True)


@pytest.fixture
def no_valgrind(monkeypatch: pytest.MonkeyPatch) -> None:
    real = shutil.which
    monkeypatch.setattr(shutil, "which", lambda n: None if n == "valgrind" else real(n))


def _measure(tmp_path: Path, *options: str) -> tuple[int, list[dict[str, object]]]:
    out = tmp_path / "out.json"
    status = command.main(["run", "hooks", "--rounds", "1", "--json", str(out), *options])
    (figure,) = json.loads(out.read_text())["figures"]
    assert figure["label"] == "null driver, CPU only"
    return status, figure["measurements"]


@pytest.mark.usefixtures("no_valgrind")
def test_every_case_is_timed_in_both_ways_with_and_without_the_shim(tmp_path: Path) -> None:
    status, found = _measure(tmp_path)

    timed = [m for m in found if m["unit"] == "ns/call"]
    assert status == 0
    cases = {m["case"] for m in timed}
    assert len(cases) == len(hooks.CASES) * len(hooks._WAYS) + len(hooks.CROWDS)
    assert {m["subject"] for m in timed} == {"no shim", "libvgpu"}
    assert all(isinstance(m["value"], float) for m in timed)
    (missing,) = [m for m in found if m["value"] is None]
    assert "valgrind" in str(missing["note"])


@pytest.mark.usefixtures("no_valgrind")
def test_a_rival_is_measured_beside_it_and_its_failure_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # GIVEN a library that adds nothing, and one that ends the program
    monkeypatch.setattr(hooks, "CASES", hooks.CASES[2:3])
    monkeypatch.setattr(hooks, "CROWDS", ())
    for name, body in (("idle", "int unused;"), ("fatal", "int cuInit(int f) { return 999; }")):
        source = tmp_path / f"{name}.c"
        source.write_text(body)
        subprocess.run(
            ["cc", "-shared", "-fPIC", str(source), "-o", str(tmp_path / f"{name}.so")],
            check=True,
            timeout=PATIENCE_S,
        )

    # WHEN measured
    idle_status, idle = _measure(tmp_path, "--shim", str(tmp_path / "idle.so"))
    fatal_status, fatal = _measure(tmp_path, "--shim", str(tmp_path / "fatal.so"))

    # THEN the first has numbers and the second a reason
    assert idle_status == 0
    assert all(m["value"] is not None for m in idle if m["subject"] == "idle.so")
    assert fatal_status == 1
    failed = [m for m in fatal if m["subject"] == "fatal.so"]
    assert failed
    assert all(m["value"] is None and "999" in str(m["note"]) for m in failed)
    assert all(m["value"] is not None for m in fatal if m["subject"] == "no shim")
