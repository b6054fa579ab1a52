"""Programs under a slice that answer one line for one line, so that tests can order their steps."""

import json
from typing import Any

from support.lines import Listening, expect
from support.shim.slices import Slice

#: What such a program begins with; the text after it may define more, then calls `serve()`.
SERVE = """
import ctypes, json, os, socket, sys
from support.shim.cuda_client import *
from support.shim.both_books import agree, device_bytes, ledger_bytes
def hexadecimal(opaque): return ctypes.string_at(opaque.getPtr(), 64).hex()
def opaque(kind, text):
    made = kind()
    ctypes.memmove(made.getPtr(), bytes.fromhex(text), 64)
    return made
def serve():
    print("ready", flush=True)
    for line in sys.stdin:
        try:
            answer = eval(line, globals())
        except CudaError as error:
            answer = {"code": error.code}
        print(json.dumps(answer), flush=True)
"""


class Served(Listening):
    """A program that was started with `SERVE`, text of its own, and `serve()`."""

    def __init__(self, part: Slice, text: str, *, shim: bool = True) -> None:
        super().__init__(part.start(f"{SERVE}{text}\nserve()\n", shim=shim))
        expect(self.process)

    def ask(self, expression: str) -> Any:
        """Returns what the expression is worth in the program."""
        self.tell(expression.replace("\n", " "))
        return json.loads(self.hear())
