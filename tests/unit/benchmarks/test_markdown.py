"""Results as a table next to those of an earlier run."""

from pathlib import Path

import pytest

from benchmarks import __main__ as command
from benchmarks.figure import Figure, Measurement, to_json
from benchmarks.markdown import read_earlier, table
from libvgpu.errors import UsageError

MEASURED = [
    Measurement("pair", "a GPU", "total", "%", 96.6, silicon=96.0, tolerance=1.0),
    Measurement("pieces | odd", "a GPU", "taken", "GiB", 5.0, silicon=7.5, tolerance=0.05),
    Measurement("lost", "a GPU", "taken", "GiB", None, note="it died", most=1.0),
]


def test_what_differs_from_silicon_is_told(tmp_path: Path) -> None:
    simulated = [Measurement("pair", "simulated GPU", "total", "%", 95.0)]
    figure = Figure("silicon", "", "", lambda options: [])
    (tmp_path / "before.json").write_text(to_json([(figure, simulated)]))

    lines = table(MEASURED, read_earlier(tmp_path / "before.json")).splitlines()

    assert lines == [
        "| Case | Quantity | Unit | a GPU | simulated GPU | silicon or bar |  |",
        "| --- | --- | --- | --- | --- | --- | --- |",
        "| pair | total | % | 96.6 | 95 | 96 ± 1 |  |",
        "| pieces \\| odd | taken | GiB | 5 | - | 7.5 ± 0.05 | differs |",
        "| lost | taken | GiB | not measured: it died | - | ≤ 1 | differs |",
    ]


@pytest.mark.parametrize("text", ["{", "{}", '{"figures": []}', '{"figures": [{}]}'])
def test_a_file_of_another_kind_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "before.json").write_text(text)

    with pytest.raises(UsageError, match=r"before\.json holds no results of --json"):
        read_earlier(tmp_path / "before.json")


def test_a_column_needs_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["run", "silicon", "--earlier", "before.json"]) == 2
    assert "give --markdown FILE with it" in capsys.readouterr().err


def test_an_earlier_run_that_is_not_there_is_said_before_anything_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    where = tmp_path / "no.json"
    command_line = ["run", "silicon", "--markdown", str(tmp_path / "t.md"), "--earlier", str(where)]

    assert command.main(command_line) == 2
    assert f"{where} cannot be read: No such file" in capsys.readouterr().err
