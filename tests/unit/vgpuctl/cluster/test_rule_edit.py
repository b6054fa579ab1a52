"""A rule goes into the text of a config, and everything else of the text stays as it was."""

import random

import pytest
import yaml

from deviceplugin.config.loading import parse_config
from libvgpu.errors import ConfigError, VgpuError
from vgpuctl.cluster.rule_edit import Match, with_rule

HEAD = """\
# ours
version: v1   # the only one
sharing:
  fractional:
  - {family: vgpu, memoryUnit: 1Gi}
"""
BLOCK = (
    HEAD
    + """\
limits:
  # of the notebooks
  - match:
      namespace: team-a
      container: notebook   # theirs
    core: 10
  # of everybody
  - match: {}
    core: "80%"
# after it
watch: {unaccounted: report}
"""
)
FORMS = {
    "none": HEAD,
    "empty": HEAD + "limits: []\nwatch: {unaccounted: report}\n",
    "block": BLOCK,
    "dashes-alone": HEAD + "limits:\n# 1\n-\n  core: 70\n\n- # two\n  memory: 1Gi  # it\n",
    "flow": HEAD + 'limits: [{match: {container: x}, core: 5}, {core: "80%"}]  # two\n',
    "flow-lines": HEAD + "limits: [\n  {match: {container: x}, core: 5},\n  {core: 70},\n]\n",
    "one": HEAD + "limits:\n- match: {namespace: b}\n  memory: 1Gi\n",
    "no-end-of-line": HEAD + "limits:\n- core: 70",
}
TEAM_A = Match("team-a")


def rules(text: str) -> list[object]:
    return list(yaml.safe_load(text).get("limits") or [])


def comments(text: str) -> list[str]:
    return [line.partition("#")[2] for line in text.splitlines() if "#" in line]


@pytest.mark.parametrize("form", FORMS)
def test_a_rule_comes_changes_and_goes_in_every_form(form: str) -> None:
    text = FORMS[form]
    parse_config(text)

    added = with_rule(text, TEAM_A, {"core": 20, "memory": "6Gi"})
    rule = {"match": {"namespace": "team-a"}, "core": 20, "memory": "6Gi"}
    assert rule in rules(added)
    assert [each for each in rules(added) if each != rule] == rules(text)
    assert comments(added) == comments(text)

    changed = with_rule(added, TEAM_A, {"core": 30, "compute": "elastic"})
    rule |= {"core": 30, "compute": "elastic"}
    assert rule in rules(changed) and len(rules(changed)) == len(rules(added))

    gone = with_rule(changed, TEAM_A, None)
    assert yaml.safe_load(gone) == {"limits": [], **yaml.safe_load(text)} | {"limits": rules(text)}
    assert comments(gone) == comments(text)


def test_a_rule_goes_before_the_first_that_would_hide_it() -> None:
    added = with_rule(BLOCK, TEAM_A, {"core": 20})
    assert [rule.get("match") for rule in rules(added)] == [  # type: ignore[attr-defined]
        {"namespace": "team-a", "container": "notebook"},
        {"namespace": "team-a"},
        {},
    ]
    labelled = Match("team-a", "notebook", (("app", "x"),))
    assert rules(with_rule(BLOCK, labelled, {"core": 20}))[0] == {
        "match": {"namespace": "team-a", "container": "notebook", "podLabels": {"app": "x"}},
        "core": 20,
    }


@pytest.mark.parametrize("hides", ["{namespace: null, podLabels: null}", "null"])
def test_a_key_that_is_null_hides_it_as_one_that_is_not_there(hides: str) -> None:
    added = with_rule(HEAD + f"limits:\n- {{match: {hides}, core: 5}}\n", TEAM_A, {"core": 20})

    assert [rule["core"] for rule in rules(added)] == [20, 5]  # type: ignore[index]


def test_an_existing_rule_keeps_its_place_and_the_lines_around_it() -> None:
    changed = with_rule(BLOCK, Match("team-a", "notebook"), {"core": 25})
    before, after = BLOCK.splitlines(), changed.splitlines()
    kept = [line for line in before if line in after]
    assert len(before) - len(kept) == 4  # its own lines, now one
    assert "  - {match: {namespace: team-a, container: notebook}, core: 25}" in after


def test_what_cannot_be_done_changes_nothing() -> None:
    with pytest.raises(VgpuError, match=r"no rule for \{namespace: team-b\} to clear"):
        with_rule(BLOCK, Match("team-b"), None)
    with pytest.raises(ConfigError, match="family"):
        with_rule(BLOCK.replace("family: vgpu", "family: other"), TEAM_A, {"core": 1})
    with pytest.raises(ConfigError, match="120"):
        with_rule(BLOCK, TEAM_A, {"core": 120})
    whole = "{version: v1, sharing: {fractional: [{family: vgpu, memoryUnit: 1Gi}]}}\n"
    with pytest.raises(VgpuError, match="cannot be changed by program"):
        with_rule(whole, TEAM_A, {"core": 20})


def test_many_changes_leave_what_they_should() -> None:
    order, text = random.Random(5), BLOCK
    said: dict[str, int] = {}
    for _ in range(200):
        name = f"team-{order.choice('bcdef')}"
        if name in said and order.random() < 0.4:
            text = with_rule(text, Match(name), None)
            del said[name]
        else:
            said[name] = order.randrange(1, 100)
            text = with_rule(text, Match(name), {"core": said[name]})
        found = {
            rule["match"]["namespace"]: rule["core"]  # type: ignore[index]
            for rule in rules(text)
            if rule["match"].get("namespace", "team-a") != "team-a"  # type: ignore[index]
        }
        assert found == said
    assert comments(text) == comments(BLOCK)
