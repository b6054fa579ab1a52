"""A program called kubectl that serves what a test gives it, as `kubectl proxy` would.

``DIRECTORY/answers.json`` has status and text by path, with its query or without; a text that
begins with ``slow:`` is sent a byte in a while. ``DIRECTORY/asked`` gets the program's words, a
line each time it is started; ``DIRECTORY/change`` what is to be merged into an object.
"""

import sys
from pathlib import Path

_PROGRAM = """\
#!{python} -IS
import json, os, socketserver, sys, time
from http.server import BaseHTTPRequestHandler
HERE = {here!r}
with open(HERE + "/asked", "a") as asked:
    print(*sys.argv[1:], file=asked)
if "view" in sys.argv:
    print("team-b", end="")
    raise SystemExit
if "patch" in sys.argv:
    with open(HERE + "/change", "w") as file:
        file.write(sys.stdin.read())
    raise SystemExit
if os.path.exists(HERE + "/broken"):
    raise SystemExit("error: the kubeconfig is broken")
path = next(w.partition("=")[2] for w in sys.argv if w.startswith("--unix-socket="))

class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        with open(HERE + "/answers.json") as file:
            answers = json.load(file)
        given = answers.get(self.path) or answers.get(self.path.partition("?")[0])
        status, text = given or (404, "{{}}")
        body = text.removeprefix("slow:").encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        step = 1 if text.startswith("slow:") else len(body)
        for at in range(0, len(body), step or 1):
            self.wfile.write(body[at : at + step])
            if step == 1:
                time.sleep(0.1)
    def address_string(self):
        return "here"
    def log_message(self, *words):
        pass

class Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True
    request_queue_size = 64

Server(path, Handler).serve_forever(0.05)
"""


def make(directory: Path) -> Path:
    """Writes the program; returns the directory that PATH needs."""
    programs = directory / "bin"
    programs.mkdir()
    program = programs / "kubectl"
    program.write_text(_PROGRAM.format(python=sys.executable, here=str(directory)))
    program.chmod(0o755)
    return programs
