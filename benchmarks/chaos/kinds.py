"""What can go wrong on a `chaos` node: each kind begins a fault, and says how it ends."""

import os
import signal
from collections.abc import Callable
from contextlib import suppress
from functools import partial

from libvgpu.sim import faults

from .config import BAD, put
from .faults import Faults

_SETS_S = (-86400.0, -7200.0, -1.0, 1.0, 3600.0, 1e7)
_EVENT_XIDS, _CRITICAL_XIDS, _LOST = (13, 31), (48, 74), 79
_NVML = ("*", "nvmlDeviceGetMemoryInfo", "nvmlDeviceGetComputeRunningProcesses", "nvmlDeviceGetH")
_NVML_ERRORS = (faults.HANGS, 999, 15, 3)
_BLOCK = bytes(1 << 16)


def _signal(storm: Faults, name: str, number: int) -> None:
    if storm.lasts(name):
        return
    storm.log.note(f"{signal.Signals(number).name} {name}")
    storm.node.signal(name, number)
    if number == signal.SIGSTOP:
        storm.later(name, lambda: storm.node.signal(name, signal.SIGCONT))
    else:
        storm.later(name, lambda: storm.start_again(name))


def _end_runner(storm: Faults) -> None:
    storm.hits(*storm.node.mps_gpus())
    _signal(storm, "runner", signal.SIGTERM)


def _signal_daemon(storm: Faults, number: int) -> None:
    daemons = storm.node.daemons()
    if not daemons:
        return
    pid = storm.chance.choice(sorted(daemons))
    storm.hits(*storm.node.mps_gpus())
    storm.log.note(f"{signal.Signals(number).name} MPS daemon", str(pid))
    _send(pid, number)
    if number == signal.SIGSTOP:
        storm.later(f"daemon {pid}", lambda: _send(pid, signal.SIGCONT))


def _signal_tenants(storm: Faults, number: int) -> None:
    running = [(t, p) for t in storm.running() for p in t.programs]
    count = storm.chance.randint(1, 4)
    for tenant, program in storm.chance.sample(running, min(count, len(running))):
        seat = f"seat {program.seat}"
        storm.log.note(f"{signal.Signals(number).name} tenant", f"{tenant.name} {seat}")
        program.signal(number)
        if number == signal.SIGSTOP:
            storm.later(seat, partial(program.process.send_signal, signal.SIGCONT))


def _set_clock(storm: Faults) -> None:
    storm.clock_off_s += storm.chance.choice(_SETS_S)
    storm.log.note("clock", f"off by {storm.clock_off_s:.0f} s")
    storm.node.set_clock(storm.clock_off_s)


def _fill(storm: Faults, what: str) -> None:
    if storm.lasts(what):
        return
    path = {"run directory": storm.node.run_dir, "state directory": storm.node.state_dir}[what]
    storm.log.note("full", what)
    with (path / "filler").open("ab", buffering=0) as file, suppress(OSError):
        while True:
            file.write(_BLOCK)
    storm.later(what, lambda: (path / "filler").unlink(missing_ok=True))


def _edit(storm: Faults) -> None:
    if not storm.lasts("config"):
        storm.node.sharing = storm.node.sharing.edited(storm.chance)
        storm.log.note("config", str(storm.node.sharing))
        put(storm.node.config, storm.node.sharing.text())


def _edit_badly(storm: Faults) -> None:
    if storm.lasts("config"):
        return
    text = storm.chance.choice((*BAD, storm.node.sharing.text()))
    storm.log.note("bad config", repr(text))
    put(storm.node.config, text, storm.chance)
    storm.later("config", lambda: put(storm.node.config, storm.node.sharing.text()))


def _lose_config(storm: Faults) -> None:
    if not storm.lasts("config"):
        storm.log.note("no config")
        storm.node.config.unlink(missing_ok=True)
        storm.later("config", lambda: put(storm.node.config, storm.node.sharing.text()))


def _lose_stream(storm: Faults) -> None:
    resource = f"nvidia.com/{storm.chance.choice(('vgpu', 'mps'))}-core"
    storm.log.note("stream ended", resource)
    with storm.node.kubelet_lock, suppress(KeyError):
        storm.node.kubelet.end_stream(resource)


def _silence(storm: Faults) -> None:
    """Nobody answers at the kubelet's podresources."""
    socket = storm.node.kubelet.podresources_socket
    aside = socket.with_name("aside")
    if storm.lasts("silent"):
        return

    def end() -> None:
        with storm.node.kubelet_lock:
            if socket.exists():
                aside.unlink(missing_ok=True)  # the kubelet was started again
            elif aside.exists():
                aside.rename(socket)

    with storm.node.kubelet_lock:
        if socket.exists():
            storm.log.note("podresources silent")
            socket.rename(aside)
            storm.later("silent", end)


def _gpu(storm: Faults) -> int:
    return storm.chance.randrange(len(storm.node.uuids))


def _break_nvml(storm: Faults) -> None:
    index, function = _gpu(storm), storm.chance.choice(_NVML)
    what = f"GPU {index}"
    if storm.lasts(what):
        return
    answer = storm.chance.choice(_NVML_ERRORS)
    storm.log.note("NVML", f"{what} {function} {'hangs' if answer < 0 else answer}")
    storm.hits(storm.node.uuids[index])
    faults.set_nvml(storm.node.machine, index, function, answer)
    storm.later(what, lambda: faults.clear(storm.node.machine, index))


def _raise_xid(storm: Faults) -> None:
    index, xid = _gpu(storm), storm.chance.choice((*_EVENT_XIDS, *_EVENT_XIDS, *_CRITICAL_XIDS))
    storm.log.note("XID", f"GPU {index} {xid}")
    if xid in _CRITICAL_XIDS:
        storm.hits(storm.node.uuids[index])
    faults.inject_xid(storm.node.machine, index, xid)


def _lose_gpu(storm: Faults) -> None:
    index = _gpu(storm)
    what = f"GPU {index}"
    if storm.lasts(what):
        return
    storm.log.note("XID", f"{what} {_LOST}, off the bus")
    storm.hits(storm.node.uuids[index])
    faults.inject_lost(storm.node.machine, index)
    storm.later(what, lambda: faults.recover(storm.node.machine, index))


def _send(pid: int, number: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, number)


KINDS: dict[str, Callable[[Faults], None]] = {
    "agent killed": lambda s: _signal(s, "agent", signal.SIGKILL),
    "agent ended": lambda s: _signal(s, "agent", signal.SIGTERM),
    "agent stopped": lambda s: _signal(s, "agent", signal.SIGSTOP),
    "runner killed": lambda s: _signal(s, "runner", signal.SIGKILL),
    "runner ended": _end_runner,
    "runner stopped": lambda s: _signal(s, "runner", signal.SIGSTOP),
    "MPS killed": lambda s: _signal_daemon(s, signal.SIGKILL),
    "MPS stopped": lambda s: _signal_daemon(s, signal.SIGSTOP),
    "tenants killed": lambda s: _signal_tenants(s, signal.SIGKILL),
    "tenants stopped": lambda s: _signal_tenants(s, signal.SIGSTOP),
    "clock": _set_clock,
    "run directory": lambda s: _fill(s, "run directory"),
    "state directory": lambda s: _fill(s, "state directory"),
    "config": _edit,
    "bad config": _edit_badly,
    "no config": _lose_config,
    "stream": _lose_stream,
    "podresources": _silence,
    "NVML": _break_nvml,
    "XID": _raise_xid,
    "GPU lost": _lose_gpu,
}
