"""What the agent does to stay small while containers come and go."""

import gc
import os
import subprocess
import sys

import pytest

from deviceplugin.footprint import Tidying
from support import ROOT

BEGUN = """
import os
from pathlib import Path
from deviceplugin.footprint import without_thread_caches
without_thread_caches()
begun_with = Path("/proc/self/environ").read_bytes()  # glibc may part it where it has read it
own = {name: value for name, value in os.environ.items() if "TUNABLES" in name}
print(os.getpid(), b"glibc.malloc.tcache_count=0" in begun_with, own)
"""


@pytest.mark.parametrize(
    ("given", "is_set"),
    [
        ({}, True),
        ({"GLIBC_TUNABLES": "glibc.malloc.perturb=1"}, True),
        ({"GLIBC_TUNABLES": "glibc.malloc.tcache_count=3"}, False),
    ],
)
def test_it_begins_again_without_thread_caches_and_its_children_do_not(
    given: dict[str, str], is_set: bool
) -> None:
    plain = {key: value for key, value in os.environ.items() if "TUNABLES" not in key}
    with subprocess.Popen(
        [sys.executable, "-c", BEGUN],
        env=plain | given,
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    ) as child:
        said, _ = child.communicate(timeout=30)

    assert said == f"{child.pid} {is_set} {given}\n"


def test_it_tidies_up_once_after_containers_have_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    collected: list[int] = []
    monkeypatch.setattr(gc, "collect", lambda: collected.append(1))
    ended = 5
    tidying = Tidying(lambda: ended)

    tidying.look()
    assert collected == []
    ended = 7
    tidying.look()
    tidying.look()
    assert collected == [1]
