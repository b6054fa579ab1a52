"""The standard streams of `vgpuctl`, made such that nothing that is printed ends in a traceback."""

import io
import os
import sys

_STREAMS = (("stdin", os.O_RDONLY, "r"), ("stdout", os.O_WRONLY, "w"), ("stderr", os.O_WRONLY, "w"))


def make_ready() -> None:
    """Opens /dev/null for each stream that is closed, and has stdout print what it can encode.

    A number below 3 that is free would be that of the next file, which then got what is printed,
    here or by the command of `run`. A locale without a letter shows ``?`` for it.
    """
    for number, (name, flags, mode) in enumerate(_STREAMS):
        if getattr(sys, name) is None:
            opened = os.open(os.devnull, flags)
            os.dup2(opened, number)  # to itself, too: what a command is to inherit
            if opened != number:
                os.close(opened)
            os.set_inheritable(number, True)
            setattr(sys, name, open(number, mode, closefd=False))  # noqa: SIM115 - for good
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")
