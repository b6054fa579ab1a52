"""A program called kubectl that serves what a test gives it, as `kubectl proxy` would.

``DIRECTORY/answers.json`` has status and text by path, with its query or without; what is behind a
forwarded port stands at the path that leads to it, a blank and its own. A text that begins with
``slow:`` is sent a byte in a while. ``DIRECTORY/asked`` gets the program's words, a
line each time it is started; ``DIRECTORY/change`` what is to be merged into an object.
"""

import sys
from pathlib import Path

_PROGRAM = """\
#!{python} -IS
import json, os, socketserver, sys, time
sys.path.append({support!r})
import forwarded_port
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

def answered(status, text):
    body = text.removeprefix("slow:").encode()
    yield f"HTTP/1.0 {{status}} so\\r\\nContent-Length: {{len(body)}}\\r\\n\\r\\n".encode()
    step = 1 if text.startswith("slow:") else len(body)
    for at in range(0, len(body), step or 1):
        yield body[at : at + step]
        if step == 1:
            time.sleep(0.1)

class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        with open(HERE + "/answers.json") as file:
            answers = json.load(file)
        given = answers.get(self.path) or answers.get(self.path.partition("?")[0])
        if "Upgrade" in self.headers and given is None:
            port = int(self.path.partition("?ports=")[2])
            forwarded_port.serve(self, port, lambda head: self.inside(head, answers))
            return
        for piece in answered(*(given or (404, "{{}}"))):
            self.wfile.write(piece)
    def inside(self, head, answers):
        at = self.path + " " + head.split()[1].decode()
        if at not in answers:
            raise OSError("connection refused")
        return answered(*answers[at])
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
    program.write_text(
        _PROGRAM.format(
            python=sys.executable, here=str(directory), support=str(Path(__file__).parent)
        )
    )
    program.chmod(0o755)
    return programs
