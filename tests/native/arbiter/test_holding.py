"""Who runs a GPU's arbiter: one process at a time holds it."""

import subprocess
import sys
from pathlib import Path

import pytest

from libvgpu.arbitration import hold_gpu
from libvgpu.errors import RegionError
from support import ROOT
from support.lines import expect


def test_one_process_at_a_time_holds_a_gpu(tmp_path: Path) -> None:
    program = (
        "import sys; from pathlib import Path; from libvgpu.arbitration import hold_gpu\n"
        "hold = hold_gpu(Path(sys.argv[1]), 'GPU-1'); print(hold is not None, flush=True)\n"
        "sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as other:
        expect(other, "True")
        assert hold_gpu(tmp_path, "GPU-1") is None
        second = hold_gpu(tmp_path, "GPU-2")
        assert second is not None
        assert hold_gpu(tmp_path, "GPU-2") is None  # nor twice in one process
        second.close()
        other.kill()
        other.wait()

        taken_over = hold_gpu(tmp_path, "GPU-1")
        assert taken_over is not None
        taken_over.close()
    assert (tmp_path / "arbiters").stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("uuid", ["", "..", "a/b", "GPU 1"])
def test_a_name_that_cannot_be_a_gpu_is_refused(tmp_path: Path, uuid: str) -> None:
    with pytest.raises(RegionError, match="cannot name a GPU"):
        hold_gpu(tmp_path, uuid)
