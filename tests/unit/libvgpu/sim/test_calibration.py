"""Calibrations: the files of the project, those that users write, and which one a GPU follows."""

import json
import re
from pathlib import Path

import pytest

from libvgpu.errors import UsageError
from libvgpu.sim import find_profile, ideal_profile, parse_spec
from libvgpu.sim.calibration import CALIBRATIONS, call_names, find_calibration, read_calibration
from libvgpu.sim.profiles import CALIBRATION, MODELS, PROFILES, SPREAD, read_profile
from libvgpu.yamltext import parse
from support import ROOT

FILES = sorted(CALIBRATIONS.glob("*.yaml"))
H100 = CALIBRATIONS / "h100.yaml"


@pytest.fixture(autouse=True)
def no_override(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(CALIBRATION)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_calibration_is_named_as_its_file(path: Path) -> None:
    assert read_calibration(path).name == path.stem
    assert find_calibration(path.stem) == read_calibration(path)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_figure_has_its_source(path: Path) -> None:
    figures, _ = parse(path.read_text(), str(path))
    assert figures.pop("measured_on")
    figures.pop("name")

    of_several = ("call_ns", "cold_call_ns", "spread_percent", "run_spread_percent")
    parts = [figure for key in of_several for figure in figures.pop(key, {}).items()]
    for name, (_, source) in [*parts, *figures.items()]:
        assert re.match(
            "measured|unmeasured[:;] |first run:|derived:|chosen", source
        ) or source.startswith("first run with"), name


#: A call -> how the results name it, and how many calls were measured together.
MEASURED = {
    "cuLaunchKernel": ("cuLaunchKernel nop, 100 behind a busy kernel", 1),
    "cuLaunchKernelEx": ("cuLaunchKernelEx nop", 1),
    "cuMemsetAsync": ("cuMemsetD8Async 1 KiB", 1),
    "cuMemset": ("cuMemsetD8Async 1 KiB", 1),
    "cuMemcpyDtoDAsync": ("cuMemcpyDtoDAsync 1 KiB", 1),
    "cuMemcpyHtoDAsync": ("cuMemcpyHtoDAsync pinned 4 KiB", 1),
    "cuMemcpyDtoHAsync": ("cuMemcpyDtoHAsync pinned 4 KiB", 1),
    "cuMemcpyDtoD": ("cuMemcpyDtoDAsync 1 KiB", 1),
    "cuMemcpyHtoD": ("cuMemcpyHtoD pageable 4 KiB", 1),
    "cuMemcpyDtoH": ("cuMemcpyDtoH pageable 4 KiB", 1),
    "cuEventCreate": ("cuEventCreate+Destroy", 2),
    "cuEventDestroy": ("cuEventCreate+Destroy", 2),
    "cuEventRecord": ("cuEventRecord", 1),
    "cuEventQuery": ("cuEventQuery done", 1),
    "cuEventSynchronize": ("cuEventSynchronize done", 1),
    "cuStreamCreate": ("cuStreamCreate+Destroy", 2),
    "cuStreamDestroy": ("cuStreamCreate+Destroy", 2),
    "cuStreamQuery": ("cuStreamQuery idle", 1),
    "cuStreamSynchronize": ("cuStreamSynchronize idle", 1),
    "cuStreamWaitEvent": ("cuStreamWaitEvent", 1),
    "cuCtxCreate": ("cuCtxCreate second", 1),
    "cuCtxDestroy": ("cuCtxDestroy second", 1),
    "cuCtxSynchronize": ("cuCtxSynchronize idle", 1),
    "cuDevicePrimaryCtxRetain": ("cuDevicePrimaryCtxRetain first", 1),
    "cuMemAllocAsync": ("cuMemAllocAsync+FreeAsync 1 MiB", 2),
    "cuMemFreeAsync": ("cuMemAllocAsync+FreeAsync 1 MiB", 2),
    "cuMemAllocManaged": ("cuMemAllocManaged+Free 1 MiB", 2),
    "cuMemAllocHost": ("cuMemAllocHost+Free 1 MiB", 2),
    "cuMemFreeHost": ("cuMemAllocHost+Free 1 MiB", 2),
    "cuMemCreate": ("cuMemCreate+Release 2 MiB", 2),
    "cuMemRelease": ("cuMemCreate+Release 2 MiB", 2),
    "cuMemMap": ("cuMemMap+SetAccess+Unmap 2 MiB", 3),
    "cuMemSetAccess": ("cuMemMap+SetAccess+Unmap 2 MiB", 3),
    "cuMemUnmap": ("cuMemMap+SetAccess+Unmap 2 MiB", 3),
    "cuMemGetInfo": ("cuMemGetInfo", 1),
    "cuModuleLoad": ("cuModuleLoadData+Unload PTX", 2),
    "cuModuleUnload": ("cuModuleLoadData+Unload PTX", 2),
    "cuGraphInstantiate": ("cuGraphInstantiate 20", 1),
    "cuGraphLaunch": ("cuGraphLaunch 1, 20 in a row", 1),
}


def test_what_is_said_to_be_measured_stands_in_the_results() -> None:
    results = json.loads((ROOT / "benchmarks/results/driver-h100-2026-11-23.json").read_text())
    figures, _ = parse(H100.read_text(), str(H100))

    measured = {
        name: ns
        for name, (ns, source) in figures["call_ns"].items()
        if source.startswith("measured")
    }

    assert measured.keys() == MEASURED.keys()
    for name, (key, count) in MEASURED.items():
        assert measured[name] == pytest.approx(results["calls_ns"][key] / count, abs=1), name


def test_what_blocks_take_is_what_pieces_took_that_had_none() -> None:
    results = json.loads((ROOT / "benchmarks/results/driver-h100-2026-11-23.json").read_text())
    shown = results["calls_ns"]
    calibration = find_calibration("h100")
    costs = dict(zip(call_names(), calibration.call_ns, strict=True))
    in_a_block_ns = costs["cuMemAlloc"] + costs["cuMemFree"]

    one_ns = shown["cuMemAlloc+Free 2 MiB"]
    assert 2 * calibration.block_ns + in_a_block_ns == pytest.approx(one_ns, abs=2)
    more_ns = 2 * 31 * calibration.further_block_ns
    assert one_ns + more_ns == pytest.approx(shown["cuMemAlloc+Free 64 MiB"], abs=31)


@pytest.mark.parametrize("path", sorted(MODELS.glob("*.yaml")), ids=lambda path: path.stem)
def test_a_model_that_nobody_measured_follows_the_h100_and_says_so(path: Path) -> None:
    lines = path.read_text().splitlines()
    marked = [line.partition(":")[0] for line in lines if "never measured" in line]

    assert read_profile(path).calibration == find_calibration("h100")
    derived = ["context_mib", "pcie_bandwidth_gb_per_s", "calibration"]
    assert marked == (derived if path.stem != "h100-80g" else [])


def test_a_profile_may_let_calls_cost_nothing(tmp_path: Path) -> None:
    text = (MODELS / "t4.yaml").read_text()
    (tmp_path / "mine.yaml").write_text(text + "call_costs: none\n")

    calibration = read_profile(tmp_path / "mine.yaml").calibration

    assert set(calibration.call_ns) == set(calibration.cold_call_ns) == {0}
    assert calibration == PROFILES["t4"].calibration.without_call_costs()


def test_fast_is_about_calls_alone() -> None:
    (fast,) = parse_spec("h100", fast=True).profiles
    (cut,) = parse_spec("h100/mig=3g.40gb*2", fast=True).profiles

    assert fast.calibration == find_calibration("h100").without_call_costs()
    assert (cut.calibration, len(cut.mig_layout or ())) == (fast.calibration, 2)


def test_the_environment_chooses_for_every_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(CALIBRATION, "ideal")

    assert read_profile(MODELS / "t4.yaml").calibration == find_calibration("ideal")
    assert ideal_profile("t4").calibration == find_calibration("ideal")


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("name: h100", "name: h 100", "name"),
        ("slice_ns: [2091000,", "slice_ns: [0,", "slice_ns"),
        ("slice_ns: [2091000,", "slice_ns: [fast,", "slice_ns"),
        ("  cuLaunchKernel:", "  cuLaunch:", "'cuLaunch'; allowed are: cuLaunchKernel, "),
        ("cold_call_ns:\n  cuLaunchKernel:", "cold_call_ns:\n  cuLaunch:", "'cuLaunch'; allowed"),
        ("block_bytes: [2097152,", "block_bytes: [2000000,", "2000000, but must be a power of 2"),
        ("event_ns: [1840, ", "event_us: [1840, ", "event_us"),
        ("event_ns: [1840, ", "event_ns: 1840 #", "event_ns"),
    ],
)
def test_a_wrong_file_is_refused_with_its_place(
    tmp_path: Path, old: str, new: str, said: str
) -> None:
    assert old in H100.read_text()
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text(H100.read_text().replace(old, new, 1))

    with pytest.raises(UsageError) as refused:
        read_calibration(wrong)

    assert f"{wrong} line " in refused.value.message
    assert said in refused.value.message


def test_an_unknown_calibration_is_named_with_those_there_are(tmp_path: Path) -> None:
    text = (MODELS / "t4.yaml").read_text()
    (tmp_path / "mine.yaml").write_text(text.replace("calibration: h100", "calibration: b200"))

    with pytest.raises(UsageError, match="line 24: unknown calibration 'b200': there are h100,"):
        find_profile(str(tmp_path / "mine.yaml"))


def test_a_seed_of_the_environment_lets_costs_vary(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SPREAD, "7")
    assert find_profile("t4").calibration == find_calibration("h100").varied(7)

    monkeypatch.setenv(SPREAD, "seven")
    with pytest.raises(UsageError, match="VGPU_SIM_SPREAD is 'seven'"):
        find_profile("t4")
