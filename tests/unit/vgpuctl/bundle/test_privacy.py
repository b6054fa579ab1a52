"""Arguments stay out; names become hashes that are the same every time."""

from deviceplugin.pages.events import KeptEvent
from libvgpu.allocation_dirs import AllocationMeta
from vgpuctl.bundle.privacy import Names, names_of_tenants, stable, without_arguments

META = AllocationMeta("a1", "vgpu", "kubelet", 0.0, "team-a", "train-0", "main")


def test_of_a_command_line_only_the_program_is_kept() -> None:
    row = {"rows": [{"command": ["/usr/bin/python", "x.py", "--token=secret"], "pid": 7}]}
    kept = without_arguments(row)
    assert "secret" not in str(kept)
    assert kept["rows"][0]["command"][0] == "python"
    assert kept["rows"][0]["pid"] == 7
    assert without_arguments({"command": ["/bin/ls"]}) == {"command": ["ls"]}
    assert without_arguments({"command": "ls"}) == {"command": "ls"}  # a process's name
    assert without_arguments({"command": []}) == {"command": []}


def test_names_are_those_of_slices_events_owners_and_the_config() -> None:
    config = {
        "limits[0].match.namespace": "team-b",
        "limits[0].match.podLabels.owner": "carol",
        "limits[1].match.namespace": "*",
        "quotas[0].namespace": "team-c",
        "sharing.fractional[0].family": "vgpu",
    }
    event = KeptEvent(0.0, "AllocationRefused", "no room", True, "team-d/eval/c")
    found = names_of_tenants([META], ["team-e/serve/c1", "unknown", ""], [event], config)
    assert found == {
        *("team-a", "train-0", "main", "team-b", "carol", "team-c", "team-d", "eval", "c"),
        *("team-e", "serve", "c1"),
    }


def test_a_name_is_replaced_where_it_stands_alone() -> None:
    names = Names({"train", "train-0", "team-a", "c"})
    told = 'pod team-a/train-0/c: trainer, train-0. c="team-a" nvidia.com/vgpu-core'
    said = names.replaced(told)
    assert said == (
        f"pod {stable('team-a')}/{stable('train-0')}/{stable('c')}: trainer, {stable('train-0')}. "
        f'{stable("c")}="{stable("team-a")}" nvidia.com/vgpu-core'
    )
    assert stable("team-a") == stable("team-a") != stable("team-b")


def test_keys_stay_and_no_names_change_nothing() -> None:
    assert Names({"pod"}).in_values({"pod": ["pod", 1]}) == {"pod": [stable("pod"), 1]}
    assert Names(set()).replaced("team-a") == "team-a"
