"""The commands of the tool. What they are called, take and mean is NVIDIA's; the exact form of the
lists that ``get_device_client_list`` and ``ps`` print follows its guide as far as that shows it."""

import os
import pwd
from typing import TYPE_CHECKING

from .settings import parse_percentage
from .wire import MpsControlError, whole_number

if TYPE_CHECKING:
    from .control import ControlDaemon
    from .peers import MpsServer, Peer


def do(control: "ControlDaemon", tool: "Peer", words: list[str]) -> None:
    """Does one command and answers, at once or when it is done."""
    try:
        reply = _start(control, tool, words)
        if reply is None:
            reply = _answer(control, words)
    except MpsControlError as error:
        tool.answer(f"1{error}")
        return
    if reply is not LATER:
        tool.answer(f"0{reply}")


#: The answer of a command that is answered when it is done.
LATER = "later"


def _server(control: "ControlDaemon", pid: str) -> "MpsServer":
    if control.server is None or pid != str(control.server.pid):
        there = f"there is {control.server.pid}" if control.server else "there is none"
        raise MpsControlError(f"no MPS server {pid!r}: {there}")
    return control.server


def _start(control: "ControlDaemon", tool: "Peer", words: list[str]) -> str | None:
    """Does what takes time: servers that start or end. None: it is another command."""
    match words:
        case ["quit"]:
            control.quit(tool, None)
            return LATER
        case ["quit", "-t", seconds]:
            if whole_number(seconds) is None:
                raise MpsControlError(f"timeout {seconds!r} is not a number of seconds")
            control.quit(tool, float(seconds))
            return LATER
        case ["start_server", "-uid", uid]:
            number = whole_number(uid)
            if number is None or number >= 1 << 32:
                raise MpsControlError(f"user {uid!r} is not a number")
            try:
                gid = pwd.getpwuid(number).pw_gid
            except KeyError:
                gid = number
            control.start_server(number, gid).starters.append(tool)
            return LATER
        case ["shutdown_server", pid]:
            server = _server(control, pid)
            if server.idle:
                server.enders.append(tool)
            server.drain()
            return LATER if server.idle else ""
        case ["shutdown_server", pid, "-f"]:
            server = _server(control, pid)
            server.enders.append(tool)
            server.kill()
            return LATER
    return None


# A row for each command.
def _answer(control: "ControlDaemon", words: list[str]) -> str:  # noqa: C901, PLR0911, PLR0912
    defaults = control.defaults
    match words:
        case ["get_server_list"]:
            return str(control.server.pid) if control.server else ""
        case ["get_server_status", pid]:
            server = _server(control, pid)
            if server.faulted:
                return "FAULT"
            return "ACTIVE" if server.active else "INITIALIZING"
        case ["get_client_list", pid]:
            return "\n".join(str(client.pid) for client in _server(control, pid).clients.values())
        case ["get_device_client_list"]:
            return _device_clients(control.server)
        case ["get_device_client_list", pid]:
            return _device_clients(_server(control, pid))
        case ["ps"]:
            return _processes(control.server)
        case ["ps", "-p", pid]:
            return _processes(_server(control, pid))
        case ["get_default_active_thread_percentage"]:
            return f"{defaults.percentage:.1f}"
        case ["set_default_active_thread_percentage", value]:
            defaults.percentage = parse_percentage(value)
            return f"{defaults.percentage:.1f}"
        case ["get_active_thread_percentage", pid]:
            return f"{_server(control, pid).settings.percentage:.1f}"
        case ["set_active_thread_percentage", pid, value]:
            settings = _server(control, pid).settings
            settings.percentage = parse_percentage(value)
            return f"{settings.percentage:.1f}"
        case ["get_default_device_pinned_mem_limit", device]:
            return defaults.get_pinned(device)
        case ["set_default_device_pinned_mem_limit", device, value]:
            defaults.set_pinned(device, value)
            return ""
        case ["get_device_pinned_mem_limit", pid, device]:
            return _server(control, pid).settings.get_pinned(device)
        case ["set_device_pinned_mem_limit", pid, device, value]:
            _server(control, pid).settings.set_pinned(device, value)
            return ""
        case ["terminate_client", *_]:
            raise MpsControlError("terminate_client is not simulated")
    raise MpsControlError(f"unknown command {' '.join(words)!r}")


def _device_clients(server: "MpsServer | None") -> str:
    if server is None:
        return ""
    lines = []
    for device in server.settings.devices:
        lines.append(device)
        lines += [str(c.pid) for c in server.clients.values() if device in c.devices]
    return "\n".join(lines)


def _processes(server: "MpsServer | None") -> str:
    """One row a client and GPU that it sees. ID numbers the contexts of a process in NVIDIA's; a
    process has one connection here, hence 0."""
    rows = [("PID", "ID", "SERVER", "DEVICE", "NAMESPACE", "COMMAND")]
    for client in server.clients.values() if server else ():
        namespace, command = _process(client.pid)
        for device in client.devices:
            if server and device in server.settings.devices:
                rows.append((str(client.pid), "0", str(server.pid), device, namespace, command))
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    )


def _process(pid: int) -> tuple[str, str]:
    try:
        namespace = str(os.stat(f"/proc/{pid}/ns/pid").st_ino)
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            command = file.read().split(b"\0")[0].decode(errors="replace")
    except OSError:  # another user's, or gone
        return "-", "-"
    return namespace, command
