"""Which files are changed, and the tests that are to notice, the quickest to fail first."""

from collections.abc import Iterator
from dataclasses import dataclass

from support import ROOT

from .operators import Mutant, mutants


@dataclass(frozen=True)
class Room:
    """Files of one job and its tests.

    Attributes:
        files: patterns of paths.
        tests: what pytest is told.
    """

    files: tuple[str, ...]
    tests: tuple[str, ...]

    def mutants(self) -> Iterator[Mutant]:
        """Yields every one there can be."""
        for pattern in self.files:
            for path in sorted(ROOT.glob(pattern)):
                yield from mutants(str(path.relative_to(ROOT)), path.read_bytes())


ROOMS = {
    "ledger": Room(
        ("libvgpu/src/slice/ledger.c",),
        (
            "tests/native/slice/test_ledger_model.py",
            "tests/native/slice/test_ledger_stops.py",
            # Has mutants of its own, by text: it fails at any change of their lines.
            "-knot without_a_part",
        ),
    ),
    "slot": Room(
        ("libvgpu/src/slice/slot.c", "libvgpu/src/slice/slot_pieces.c"),
        (
            "tests/native/slice/test_process_life.py",
            "tests/native/slice/test_shared_slots.py",
            # These take longer than all others together.
            "-knot leave_slots_for_processes and not make",
        ),
    ),
    "comparison": Room(
        ("deviceplugin/watch/comparison.py",),
        (
            "tests/unit/deviceplugin/watch/test_watcher.py",
            "tests/unit/deviceplugin/watch/test_watcher_ending.py",
            "tests/unit/deviceplugin/watch/test_unaccounted_memory.py",
            "tests/unit/deviceplugin/watch/test_mixed_load.py",
        ),
    ),
    "pairing": Room(
        ("deviceplugin/policy/pairing/*.py",),
        (
            "tests/unit/deviceplugin/policy/pairing",
            *(
                f"tests/unit/deviceplugin/core/test_{name}.py"
                for name in ("pod_correlation", "pod_knowledge", "device_admission")
            ),
        ),
    ),
    "journal": Room(
        tuple(f"deviceplugin/store/{name}.py" for name in ("journal", "checkpoint", "append_file")),
        (
            "tests/unit/deviceplugin/store/test_checkpoint.py",
            "tests/unit/deviceplugin/store/test_checkpoint_crashes.py",
            "tests/unit/deviceplugin/store/test_node_state.py",
        ),
    ),
}
