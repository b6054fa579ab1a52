"""Threads that decode a type for the first time at once."""

import subprocess
import sys

import pytest

from support import ROOT

# A type of many types takes long to work out, so that threads would meet it half made.
# A process of its own, since what goes wrong here is SIGSEGV.
_PROGRAM = """
import sys, threading
import msgspec
from libvgpu.decoding import converter, json_decoder

sys.setswitchinterval(1e-6)
DEPTH = 20
data = 1
for _ in range(DEPTH):
    data = {"inner": data, "text": "x"}
text = msgspec.json.encode(data)
for _ in range(40):
    kind = int
    for depth in range(DEPTH):
        fields = [("inner", kind), ("text", str), ("more", list[kind], [])]
        kind = msgspec.defstruct(f"Kind{depth}", fields)
    begin = threading.Barrier(4)

    def decode(way):
        begin.wait()
        way()

    ways = [lambda: json_decoder(kind).decode(text), lambda: converter(kind)(data)] * 2
    threads = [threading.Thread(target=decode, args=(way,)) for way in ways]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
print("all decoded")
"""


@pytest.mark.process
def test_a_type_is_whole_before_any_thread_decodes_with_it() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, "all decoded\n"), done.stderr
