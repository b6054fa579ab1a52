"""``python -m deviceplugin`` as a process: wrong input ends it in one sentence, nothing started."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from support import ROOT
from support.waiting import PATIENCE_S

GOOD = "version: v1\nsharing:\n  fractional:\n  - {family: vgpu, devices: [0]}\n"


def run_module(module: str, base: Path, *options: str) -> subprocess.CompletedProcess[str]:
    directories = [f"--{name}-dir={base / name}" for name in ("kubelet", "state", "run")]
    if module == "deviceplugin.mps":
        directories = directories[1:]
    environment = {k: v for k, v in os.environ.items() if k != "LD_LIBRARY_PATH"}
    return subprocess.run(
        [sys.executable, "-m", module, *directories, *options],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )


@pytest.mark.parametrize("module", ["deviceplugin", "deviceplugin.mps"])
@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("version: v1\nsharring: {}\n", "line 2: unknown key 'sharring' in the file"),
        (
            GOOD + "  - {family: mps, devices: [0]}\n",
            "line 5: GPU 0 is already shared on line 4",
        ),
    ],
)
def test_a_wrong_config_ends_it_with_status_2(
    tmp_path: Path, module: str, text: str, said: str
) -> None:
    config = tmp_path / "config.yaml"
    config.write_text(text)

    result = run_module(module, tmp_path, "--config", str(config))

    assert result.returncode == 2
    assert said in result.stderr
    assert len(result.stderr.splitlines()) == 1
    assert result.stdout == ""
    assert list(tmp_path.iterdir()) == [config], "something was left behind"


def test_a_missing_config_and_a_wrong_address_are_named(tmp_path: Path) -> None:
    config = tmp_path / "config.yaml"
    config.write_text(GOOD)

    missing = run_module("deviceplugin", tmp_path, "--config", str(tmp_path / "none.yaml"))
    address = run_module(
        "deviceplugin", tmp_path, "--config", str(config), "--metrics-address", "9446"
    )

    assert (missing.returncode, address.returncode) == (2, 2)
    assert "none.yaml cannot be read: No such file" in missing.stderr
    assert "metrics address '9446' is not HOST:PORT" in address.stderr
    assert list(tmp_path.iterdir()) == [config]
