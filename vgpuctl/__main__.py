"""The entry point: runs the command line and turns every error into one sentence on stderr.

Exit status: 0 good, 1 refused or unhealthy, 2 wrong usage; `run` and `sim run` exit with the
command's own status.
"""

import os
import sys
from collections.abc import Sequence

import click

from libvgpu.errors import VgpuError

from .cli import DEBUG_VARIABLE, cli
from .streams import make_ready

_STATUS_WRONG_USAGE = 2
_STATUS_INTERRUPTED = 130  # 128 + SIGINT, as a shell has it
_STATUS_BROKEN_PIPE = 141  # 128 + SIGPIPE: what any other program that writes to `head` gets


def _say(program: str, message: str, hint: str | None = None) -> None:
    print(f"{program}: {message}", file=sys.stderr)
    if hint:
        print(f"hint: {hint}", file=sys.stderr)


def main(  # noqa: PLR0911 - a status for each end
    arguments: Sequence[str] | None = None,
    program: str = "vgpuctl",
    group: click.Group = cli,
) -> int:
    """Runs one command line and returns its exit status.

    Args:
        arguments: without the program's name; by default those of this process.
        program: what a user types before them.
        group: whose verbs they may name.
    """
    make_ready()
    stdout = sys.stdout
    try:
        result = group.main(args=arguments, prog_name=program, standalone_mode=False)
        sys.stdout.flush()
    except VgpuError as error:
        _say(program, error.message, error.hint)
        return error.exit_status
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message(), err=True)
        return _STATUS_WRONG_USAGE
    except click.UsageError as error:
        path = error.ctx.command_path if error.ctx else program
        message = error.format_message()
        _say(program, message[:1].lower() + message[1:].rstrip("."), f"try '{path} --help'")
        return _STATUS_WRONG_USAGE
    except click.ClickException as error:
        _say(program, error.format_message())
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        return _STATUS_INTERRUPTED
    except SystemExit as error:
        # Click ends so, with 1, where the reader of our output went away, and has put a wrapper in
        # the place of stdout then. Any other way out is the verb's own.
        if sys.stdout is not stdout:
            return _STATUS_BROKEN_PIPE
        return error.code if isinstance(error.code, int) else VgpuError.exit_status
    except BrokenPipeError:
        _drop_output()  # its reader went away
        return _STATUS_BROKEN_PIPE
    except OSError as error:
        _drop_output()  # the disk may be full
        _say(program, f"{error.filename or 'system call'}: {error.strerror or error}")
        return VgpuError.exit_status
    except Exception as error:
        if os.environ.get(DEBUG_VARIABLE):
            import traceback

            traceback.print_exc()
        _say(
            program,
            f"an error of {program} itself: {error!r}",
            f"{program} --debug VERB… shows where; please report it",
        )
        return VgpuError.exit_status
    return result if isinstance(result, int) else 0


def _drop_output() -> None:
    """Drops what stdout does not take; Python would complain of it once more at shutdown."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


if __name__ == "__main__":
    sys.exit(main())
