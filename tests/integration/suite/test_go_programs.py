"""Go programs of tests are built once for what they are made of, whole or not at all."""

from pathlib import Path

import pytest

from support.cluster import go_programs
from support.cluster.go_programs import MOST_KEPT, GoPrograms

#: It writes a program, and ends in the middle of the next one where it is told to.
GO = """\
#!/bin/sh
echo "$1" >> {told}
[ "$1" = build ] || exit 0
while [ "$1" != -o ]; do shift; done
echo whole > "$2/one"
[ -e {fails} ] && exit 1
echo whole > "$2/two"
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A module, and a Go that notes in ``told`` what it was asked for."""
    monkeypatch.setenv("VGPU_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(go_programs, "ROOT", tmp_path)
    (tmp_path / "go").write_text(GO.format(told=tmp_path / "told", fails=tmp_path / "fails"))
    (tmp_path / "go").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    folder = tmp_path / "tests/e2e/module-1.34"  # what follows a dot is of the name
    folder.mkdir(parents=True)
    (folder / "go.sum").write_text("first")
    return folder


def told(module: Path) -> list[str]:
    return (module.parents[2] / "told").read_text().split()


def test_what_is_there_asks_go_for_nothing(module: Path) -> None:
    programs = GoPrograms(module, "it", ("one", "two"))
    assert programs.missing() == ""
    built = programs.build()
    assert {path.name for path in built.iterdir()} == {"one", "two"}
    assert told(module) == ["mod", "build"]

    again = GoPrograms(module, "it", ("two", "one"))

    assert again.missing() == ""
    assert again.build() == built
    assert told(module) == ["mod", "build"]


@pytest.mark.parametrize("other", ["sum", "source", "flags", "packages"])
def test_what_is_made_of_something_else_is_built(module: Path, other: str) -> None:
    first = GoPrograms(module, "it", ("one", "two")).build()
    if other in ("sum", "source"):
        (module / {"sum": "go.sum", "source": "main.go"}[other]).write_text("second")
    packages = ("one",) if other == "packages" else ("one", "two")
    flags = "-X a.b=c" if other == "flags" else ""

    assert GoPrograms(module, "it", packages, flags).build() != first
    assert first.is_dir()  # another checkout may still want it
    assert told(module) == ["build", "build"]


def test_a_build_that_fails_leaves_nothing_that_is_taken_for_whole(module: Path) -> None:
    fails = module.parents[2] / "fails"
    fails.touch()
    programs = GoPrograms(module, "it", ("one", "two"))
    with pytest.raises(AssertionError):
        programs.build()
    fails.unlink()

    assert {path.name for path in programs.build().iterdir()} == {"one", "two"}
    assert told(module) == ["build", "build"]


def test_what_nobody_has_used_for_longest_goes(module: Path, tmp_path: Path) -> None:
    for number in range(MOST_KEPT + 2):
        (module / "go.sum").write_text(str(number))
        newest = GoPrograms(module, "it", ("one",)).build()

    kept = [path for path in (tmp_path / "cache/go").iterdir() if path.is_dir()]
    assert len(kept) == MOST_KEPT
    assert newest in kept


def test_without_go_it_is_said_what_cannot_be_built(
    module: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(module))

    assert GoPrograms(module, "the judge").missing() == (
        "no Go compiler: the judge cannot be built"
    )
