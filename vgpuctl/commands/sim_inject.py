"""`vgpuctl sim inject`: things that go wrong on a simulated machine, on request.

The machine is named as ``@NAME``, by its directory, or not at all where there is only one; a GPU of
it by ``/INDEX`` behind that.
"""

from dataclasses import dataclass
from pathlib import Path

import click

from libvgpu.errors import SimulationError, UsageError
from libvgpu.sim import faults, named
from libvgpu.sim.machine import Machine
from libvgpu.sizes import whole_number
from vgpuctl import gpu_choice as gpu_sources

from ..examples import examples
from ..render import Row

_LARGEST_XID = 1 << 16
_LARGEST_COUNT = 1_000_000
_LARGEST_DELAY_US = 10_000_000
_NS_PER_US = 1000


@dataclass(frozen=True, slots=True)
class Target:
    """What is to go wrong.

    Attributes:
        machine: the simulated machine.
        index: of the GPU, where one was named.
    """

    machine: Machine
    index: int | None

    @property
    def words(self) -> str:
        name = named.name_of(self.machine)
        return f"simulated machine {f'@{name}' if name else self.machine.directory}"

    def gpu(self) -> int:
        """Returns the GPU that is meant.

        Raises:
            UsageError: there are several, and none was named.
        """
        if self.index is not None:
            return self.index
        if len(self.machine.devices) > 1:
            raise UsageError(
                f"{self.words} has {len(self.machine.devices)} GPUs: name one, /0 to "
                f"/{len(self.machine.devices) - 1} behind the machine"
            )
        return 0

    def whole(self) -> Machine:
        """Returns the machine.

        Raises:
            UsageError: a GPU was named.
        """
        if self.index is not None:
            raise UsageError(
                f"calls fail on a whole machine, not on one GPU: leave off /{self.index}"
            )
        return self.machine


class _TargetFirst(click.Group):
    """A group whose argument may be left off."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if args and (args[0] in self.commands or args[0] in ctx.help_option_names):
            args = ["", *args] if args[0] in self.commands else args
        return super().parse_args(ctx, args)


def _find(text: str) -> Target:
    base, slash, last = text.rpartition("/")
    index = whole_number(last) if slash and not Path(text).is_dir() else None
    place = text if index is None else base
    if place.startswith(named.NAMED):
        machine = Machine.open(named.named_directory(place[1:]))
    elif place:
        machine = Machine.open(Path(place))
    else:
        machines = gpu_sources.simulated_machines()
        if len(machines) != 1:
            names = ", ".join(f"@{named.name_of(m) or m.directory.name}" for m in machines)
            raise UsageError(f"name a machine: there are {names or 'no simulated machines'}")
        (machine,) = machines
    if index is not None and index >= len(machine.devices):
        raise UsageError(
            f"no GPU {index} in {text!r}: that machine has 0 to {len(machine.devices) - 1}"
        )
    return Target(machine, index)


def _number(text: str, what: str, least: int, most: int) -> int:
    number = whole_number(text)
    if number is None or not least <= number <= most:
        raise UsageError(f"{what} {text!r} is not allowed: give a number from {least} to {most}")
    return number


def _say(target: Target, words: str, gpu: int | None = None) -> None:
    where = target.words if gpu is None else f"GPU {gpu} of {target.words}"
    click.echo(f"{where}: {words}")


@click.group(
    "inject",
    cls=_TargetFirst,
    subcommand_metavar="WHAT [ARGS]...",
    short_help="Have something go wrong on a simulated machine.",
    epilog=examples("vgpuctl sim inject @box/0 xid 79", "vgpuctl sim inject clear"),
)
@click.argument("machine", metavar="[MACHINE][/GPU]")
@click.pass_context
def inject(ctx: click.Context, machine: str) -> None:
    """Have something go wrong on a simulated MACHINE: @NAME, a directory, or the only one."""
    ctx.obj = machine


@inject.command("xid", epilog=examples("vgpuctl sim inject @box/0 xid 48"))
@click.argument("number")
@click.pass_obj
def _xid(text: str, number: str) -> None:
    """Raise the XID NUMBER, an event of NVML.

    48, 63, 64, 94 and 95 are also counted as an uncorrectable ECC error and break the contexts
    begun so far; 79 loses the GPU.
    """
    xid = _number(number, "XID", 1, _LARGEST_XID)
    target = _find(text)
    gpu = target.gpu()
    faults.inject_xid(target.machine, gpu, xid)
    more = ""
    if xid in faults.UNCORRECTABLE_XIDS:
        more = ", an uncorrectable ECC error: the contexts begun so far are broken"
    elif xid == faults.XID_LOST:
        more = ": the GPU is lost"
    _say(target, f"XID {xid} raised{more}", gpu)


@inject.command(
    "lost",
    epilog=examples("vgpuctl sim inject @box/1 lost", "vgpuctl sim inject @box/1 lost --recover"),
)
@click.option("--recover", is_flag=True, help="Bring it back; contexts that it had stay broken.")
@click.pass_obj
def _lost(text: str, recover: bool) -> None:
    """Have the GPU fall off the bus."""
    target = _find(text)
    gpu = target.gpu()
    if not recover:
        faults.inject_lost(target.machine, gpu)
        _say(target, "lost, XID 79 raised", gpu)
        return
    if not target.machine.device_faults(gpu).lost:
        raise SimulationError(f"GPU {gpu} of {target.words} is not lost")
    faults.recover(target.machine, gpu)
    _say(target, "back; the contexts it had are broken", gpu)


@inject.command(
    "fail-allocations",
    short_help="Have the next allocations find no memory.",
    epilog=examples("vgpuctl sim inject @box/0 fail-allocations 3"),
)
@click.argument("count")
@click.pass_obj
def _fail_allocations(text: str, count: str) -> None:
    """Have the next COUNT allocations on the GPU find no memory."""
    number = _number(count, "count", 0, _LARGEST_COUNT)
    target = _find(text)
    gpu = target.gpu()
    faults.fail_allocations(target.machine, gpu, number)
    _say(target, f"the next {number} allocations find no memory", gpu)


@inject.command("delay", epilog=examples("vgpuctl sim inject @box delay 250"))
@click.argument("microseconds")
@click.pass_obj
def _delay(text: str, microseconds: str) -> None:
    """Have every driver call take MICROSECONDS longer."""
    number = _number(microseconds, "delay in microseconds", 0, _LARGEST_DELAY_US)
    target = _find(text)
    faults.delay_calls(target.whole(), number * _NS_PER_US)
    _say(target, f"every driver call takes {number} us longer")


@inject.command(
    "code",
    short_help="Have the next driver calls answer a CUresult.",
    epilog=examples("vgpuctl sim inject @box code CUDA_ERROR_ILLEGAL_ADDRESS --count 2"),
)
@click.argument("code")
@click.option("--count", default="1", show_default=True, help="How many calls answer so.")
@click.pass_obj
def _code(text: str, code: str, count: str) -> None:
    """Have the next driver calls answer the CUresult CODE, a name or number, and not work."""
    codes = faults.curesults()
    number = codes.get(code, whole_number(code) or 0)
    if number not in codes.values():
        raise UsageError(
            f"CUresult {code!r} is not allowed: give a name or number of an error of CUDA's "
            "driver API, for example 700 or CUDA_ERROR_ILLEGAL_ADDRESS"
        )
    times = _number(count, "count", 0, _LARGEST_COUNT)
    target = _find(text)
    faults.fail_calls(target.whole(), number, times)
    _say(target, f"the next {times} driver calls answer {number}")


@inject.command(
    "nvml",
    short_help="Have NVML not answer, or refuse, for one GPU.",
    epilog=examples(
        "vgpuctl sim inject @box/1 nvml all hang",
        "vgpuctl sim inject @box/0 nvml nvmlDeviceGetMemoryInfo NVML_ERROR_NOT_SUPPORTED",
    ),
)
@click.argument("function")
@click.argument("answer")
@click.pass_obj
def _nvml(text: str, function: str, answer: str) -> None:
    """Have the FUNCTION of NVML, or all of them, ANSWER for the GPU until that is cleared.

    FUNCTION is all, or what names begin with: one without its version means each version. ANSWER is
    the name or number of an NVML error, or hang: then calls do not return.
    """
    if function != "all" and not any(n.startswith(function) for n in faults.nvml_functions()):
        raise UsageError(
            f"NVML function {function!r} is not simulated: give the beginning of a name, for "
            "example nvmlDeviceGetMemoryInfo, or all"
        )
    errors = faults.nvml_errors() | {"hang": faults.HANGS}
    number = errors.get(answer, whole_number(answer) or 0)
    if number not in errors.values():
        raise UsageError(
            f"answer {answer!r} is not allowed: give hang, or a name or number of an error of "
            "NVML, for example 3 or NVML_ERROR_NOT_SUPPORTED"
        )
    target = _find(text)
    gpu = target.gpu()
    named = faults.EVERY_FUNCTION if function == "all" else function
    faults.set_nvml(target.machine, gpu, named, number)
    _say(target, _nvml_words(named, number), gpu)


def _nvml_words(function: str, answer: int) -> str:
    which = "every function of NVML" if function == faults.EVERY_FUNCTION else f"{function}"
    return f"{which} {'hangs' if answer == faults.HANGS else f'answers {answer}'}"


@inject.command(
    "ecc",
    short_help="Count an ECC error, corrected or not.",
    epilog=examples("vgpuctl sim inject @box/0 ecc double"),
)
@click.argument("kind", type=click.Choice(["single", "double"]))
@click.pass_obj
def _ecc(text: str, kind: str) -> None:
    """Count a corrected (single) or uncorrected (double) ECC error, an event of NVML."""
    target = _find(text)
    gpu = target.gpu()
    target.machine.raise_event(gpu, f"ecc_{kind}", 0)
    corrected, uncorrected = target.machine.ecc_errors(gpu)
    _say(target, f"{corrected} corrected and {uncorrected} uncorrected ECC errors now", gpu)


@inject.command("clear", epilog=examples("vgpuctl sim inject @box clear"))
@click.pass_obj
def _clear(text: str) -> None:
    """End what was injected, on one GPU or everywhere."""
    target = _find(text)
    faults.clear(target.machine, target.index)
    _say(target, "nothing is injected any more", target.index)


def injected_words(row: Row) -> str:
    """Returns what is injected into a machine, from its row in ``sim list``."""
    words, calls, gpus = [], row["call_faults"], row["gpus"]
    assert isinstance(calls, dict) and isinstance(gpus, list)
    if calls["delay_ns"]:
        words.append(f"calls {calls['delay_ns'] // _NS_PER_US} us slower")
    if calls["code_count"]:
        words.append(f"{calls['code_count']} calls answer {calls['code']}")
    for gpu in gpus:
        found, name = gpu["faults"], f"GPU {gpu['index']}"
        if found["lost"]:
            words.append(f"{name} lost")
        if found["broken_code"]:
            words.append(f"{name} contexts broken with {found['broken_code']}")
        if found["failing_allocations"]:
            words.append(f"{name} fails {found['failing_allocations']} allocations")
        words += [f"{name} {_nvml_words(f['function'], f['answer'])}" for f in found["nvml"]]
    return ", ".join(words)
