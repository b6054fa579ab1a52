"""The account of a run: exact where it can be, and it says where it cannot."""

from dataclasses import replace
from pathlib import Path

from libvgpu.limits import DeviceLimit
from libvgpu.region import ContainerUsage, DeviceUsage, ProcessUsage
from libvgpu.usage import KIND_NAMES, Refusal
from vgpuctl.run.account import RunAccount
from vgpuctl.run.summary import EndedRun, lines

MIB = 1 << 20
NOTHING = DeviceUsage(0, 0, dict.fromkeys(KIND_NAMES, 0), 0, 0, 0, 0, 0, (), False, 0, 0, None)


def process(
    slot: int, generation: int = 1, alive: bool = True, *, shared: bool = False, **figures: object
) -> ProcessUsage:
    own = replace(NOTHING, **figures)  # type: ignore[arg-type]
    return ProcessUsage(slot, 1, 1, "python", alive, shared, (own,), generation=generation)


def note(account: RunAccount, *processes: ProcessUsage) -> None:
    used = sum(each.devices[0].used_bytes for each in processes)
    account.note(ContainerUsage("x", (replace(NOTHING, used_bytes=used),), processes))


def told(account: RunAccount, limit: DeviceLimit, elapsed_s: float = 10.0) -> dict[str, str]:
    """Returns the block by name; what comes before the GPU under an empty name."""
    ended = EndedRun("train", "run-1", elapsed_s, 7, ["0 (GPU-a, T4)"], [limit])
    found = {"": ""}
    for line in lines(ended, account.result()):
        name, colon, value = line.strip().partition(":")
        if line.startswith("    ") and colon:
            found[name] = value.strip()
        else:
            found[""] += line + "\n"
    return found


def make() -> RunAccount:
    return RunAccount(Path("/nowhere"), 1)


HALF = DeviceLimit("GPU-a", 1024 * MIB, core_percent=50)


def test_one_process_is_told_exactly() -> None:
    account = make()
    refusal = Refusal(8192 * MIB, 100 * MIB, 1024 * MIB, 1_700_000_000_000_000_000, "plain")
    note(account, process(0, launches=5, gpu_time_ns=10**9, peak_bytes=300 * MIB))
    note(
        account,
        process(
            0, alive=False, launches=9, gpu_time_ns=4 * 10**9, held_ns=2 * 10**9, windows=3,
            peak_bytes=600 * MIB, refused_count=2, last_refusal=refusal,
        ),
    )  # fmt: skip

    found = told(account, HALF)

    assert "train (run-1) ran 10.0s, exit status 7" in found[""]
    assert found["Peak memory"] == "600 MiB of 1 GiB"
    assert found["GPU time"] == "4.0s, on average 40.0 % of the GPU's time"
    assert found["Launches"] == "9"
    assert found["Held back"] == "2.0s, 20.0 % of the run"
    assert found["Turns"] == "3 on a contended GPU"
    assert found["Refused"].startswith("2 allocations, the last 2023-11-1")
    assert found["Refused"].endswith("8 GiB asked (plain), 100 MiB of 1 GiB in use")


def test_processes_one_after_the_other_add_up_and_their_peaks_do_not() -> None:
    account = make()
    for generation in (1, 3, 5):
        for alive in (True, False):
            note(account, process(0, generation, alive, launches=4, peak_bytes=200 * MIB))

    found = told(account, HALF)

    assert found["Launches"] == "12"
    assert found["Peak memory"] == "200 MiB of 1 GiB"
    assert "≥" not in str(found)


def test_processes_at_once_give_a_peak_between_two_figures() -> None:
    account = make()
    note(account, process(0, peak_bytes=200 * MIB), process(1, peak_bytes=300 * MIB))
    note(account, process(0, alive=False, peak_bytes=200 * MIB), process(1, peak_bytes=500 * MIB))
    note(account, process(0, alive=False, peak_bytes=200 * MIB), process(1, peak_bytes=900 * MIB))

    peak = told(account, HALF)["Peak memory"]

    assert peak == "900 MiB of 1 GiB", "the first had ended when the second held so much"

    note(account, process(0, 3, peak_bytes=100 * MIB), process(1, peak_bytes=900 * MIB))
    peak = told(account, HALF)["Peak memory"]
    assert peak == "900 MiB to 1000 MiB (several processes at once) of 1 GiB"


def test_what_ended_unseen_is_said_to_be_missing() -> None:
    replaced, skipped, first = make(), make(), make()
    note(replaced, process(0, 1, launches=4))
    note(replaced, process(0, 3, launches=4))
    note(skipped, process(0, 1, alive=False, launches=4))
    note(skipped, process(0, 5, launches=4))
    note(first, process(0, 3, launches=8))

    for account in (replaced, skipped, first):
        found = told(account, HALF)
        assert found["Launches"] == "≥ 8"
        assert "ended unseen" in found[""]


def test_a_piece_of_memory_that_others_join_is_no_process_that_ended() -> None:
    account = make()
    note(account, process(9, 1, shared=True, peak_bytes=MIB))
    note(account, process(9, 7, shared=True, peak_bytes=MIB))

    assert "≥" not in str(told(account, HALF))


def test_samples_are_marked_and_what_is_not_known_is_said() -> None:
    whole = DeviceLimit("GPU-a", 1024 * MIB)
    account = make()
    assert told(account, whole)["GPU time"].startswith("not known")
    note(account, process(0, gpu_time_ns=10**9, launches=4))

    found = told(account, whole)

    assert found["GPU time"] == "about 1.0s, on average about 10.0 % of the GPU's time"
    assert found["Launches"] == "about 4"


def test_a_file_that_cannot_be_read_is_said() -> None:
    assert "figures up to the last good look only" in told(make(), HALF)[""]
