"""The schemas of `-o json` are those of the types, and do not change without a version."""

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import jsonschema
import pytest

from libvgpu.limits import DeviceLimit, Family
from support import ROOT
from support.made_slices import make_slice
from support.output_schemas import check
from vgpuctl.__main__ import main
from vgpuctl.output.__main__ import main as write
from vgpuctl.output.rows import Version
from vgpuctl.output.schemas import (
    breaks,
    demands,
    file_name,
    schema_of,
    schema_of_page,
)
from vgpuctl.render import OUTPUT_VERSION

FOUND = {"version": 1, "check": "mps", "level": "ok", "message": "", "fix": ""}
NODE_FOUND = FOUND | {"node": "n1"}


@pytest.mark.parametrize(("output", "row"), [("doctor", FOUND), ("kubectl-doctor", NODE_FOUND)])
def test_an_object_has_the_keys_of_its_schema_and_no_other(
    output: str, row: dict[str, object]
) -> None:
    assert check(output, json.dumps([row, row])) == [row, row]

    others = [row | {"more": ""}, row | {"level": "odd"}]
    others += [{key: row[key] for key in row if key != name} for name in row]
    for other in others:
        with pytest.raises(jsonschema.ValidationError):
            check(output, json.dumps([row, other]))


def test_the_parts_of_an_object_have_no_other_key() -> None:
    faults = {"delay_ns": 0, "code": 0, "code_count": 0}
    row: dict[str, object] = {
        "version": 1,
        "name": None,
        "directory": "",
        "cuda_version": "",
        "gpus": [],
    }
    check("sim list", json.dumps([row | {"call_faults": faults}]))

    with pytest.raises(jsonschema.ValidationError, match="'more' was unexpected"):
        check("sim list", json.dumps([row | {"call_faults": faults | {"more": 0}}]))


@pytest.mark.parametrize("schema", sorted((ROOT / "docs/schemas").iterdir()), ids=lambda p: p.name)
def test_what_is_shipped_is_a_schema(schema: Path) -> None:
    jsonschema.Draft202012Validator.check_schema(json.loads(schema.read_text()))


def test_a_page_that_lacks_what_came_later_is_still_read() -> None:
    older = copy.deepcopy(schema_of_page("agent-slices"))
    usage = older["$defs"]["DeviceUsage"]
    del usage["properties"]["windows"]
    usage["required"].remove("windows")
    del older["$defs"]["NodeSlices"]["properties"]["run_dir"]
    assert list(breaks(older, schema_of_page("agent-slices"))) == []
    assert list(demands(older, schema_of_page("agent-slices"))) == [
        "DeviceUsage.windows is demanded of pages that lack it"
    ]


def test_the_version_is_one() -> None:
    assert get_args(get_args(Version)[0]) == (OUTPUT_VERSION,)


def _lacks(schema: Any) -> None:
    del schema["$defs"]["PsRow"]["properties"]["pid"]


def _other_type(schema: Any) -> None:
    schema["$defs"]["PsRow"]["properties"]["allocation"] = {"type": "integer"}


def _optional(schema: Any) -> None:
    schema["$defs"]["PsRow"]["required"].remove("pid")


def _less_words(schema: Any) -> None:
    schema["$defs"]["PsRow"]["properties"]["state"]["enum"].remove("idle")


def _no_refusals(schema: Any) -> None:
    del schema["$defs"]["LastRefusal"]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (_lacks, "PsRow.pid is gone"),
        (_other_type, "PsRow.allocation has another form"),
        (_optional, "PsRow.pid may be absent"),
        (_less_words, "PsRow.state has another form"),
        (_no_refusals, "LastRefusal is gone"),
    ],
)
def test_what_breaks_programs_needs_another_version(
    change: Callable[[Any], None], said: str
) -> None:
    other = copy.deepcopy(schema_of("ps"))
    change(other)
    assert list(breaks(schema_of("ps"), other)) == [said]


def test_keys_words_and_texts_may_come() -> None:
    older = copy.deepcopy(schema_of("ps"))
    row = older["$defs"]["PsRow"]
    del row["properties"]["pid"]
    row["required"].remove("pid")
    row["properties"]["state"]["enum"].remove("idle")
    row["description"] = "Older."
    assert list(breaks(older, schema_of("ps"))) == []


def test_files_are_not_overwritten_by_what_breaks_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert write(tmp_path) == 0
    path = tmp_path / file_name("set")
    older = json.loads(path.read_text())
    older["$defs"]["SetRow"]["properties"]["extra"] = {"type": "string"}
    path.write_text(json.dumps(older))

    assert write(tmp_path) == 1

    said = capsys.readouterr().err
    assert "SetRow.extra is gone" in said and "OUTPUT_VERSION" in said
    assert json.loads(path.read_text()) == older


def test_damaged_slices_and_gpus_that_only_slices_name_keep_to_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vgpuctl.gpu_choice.named.machines_root", lambda: tmp_path)
    for name in ("good", "damaged", "useless"):
        family = Family.VGPU if name == "useless" else Family.MPS
        make_slice(tmp_path, name, DeviceLimit("GPU-x", 1 << 30), family=family)
    (tmp_path / "allocations/damaged/limits").chmod(0o600)
    (tmp_path / "allocations/damaged/limits").write_bytes(b"x" * 100)
    (tmp_path / "allocations/useless/usage").unlink()

    states = {}
    for verb in ("ps", "status"):
        assert main([verb, "--run-dir", str(tmp_path), "-o", "json"]) == 0
        states[verb] = check(verb, capsys.readouterr().out)
    assert sorted(str(row["state"]) for row in states["ps"]) == ["damaged", "damaged", "idle"]
    assert [row["source"] for row in states["status"]] == ["limits"]
    for name in ("good", "damaged", "useless"):
        assert main(["describe", name, "--run-dir", str(tmp_path), "-o", "json"]) == 0
        check("describe", capsys.readouterr().out)
