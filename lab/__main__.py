"""The command line: it runs the named command (a module of `lab/commands/`), and prints an error as one line.

The exit status is 0 for success, and 2 for wrong usage or a missing prerequisite. It is 1 for any other failure, such
as a run in which a planned measurement has no valid sample.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence

from rich.console import Console
from rich.markup import escape

from lab.base.errors import LabError, refuse_if
from lab.commands import RanInsideError
from lab.commands.verbs import new_spelling, parser, refuse_empty, replace_old_options
from lab.model.names import INSIDE


class StderrConsole(Console):
    """The console for messages on stderr; it falls silent when nobody reads stderr any more (`2>&1 | head`).

    The measuring then continues, instead of ending with an error.
    """

    def on_broken_pipe(self) -> None:
        """Discard everything that is printed from now on, since nobody reads it."""
        self.quiet = True
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command of the lab, such as `bench keepalive`, and return the exit status of the process.

    An error is printed as one line on stderr, and determines the exit status.

    Args:
        argv: The arguments of the command line; None = the arguments that the process was started with.

    """
    if INSIDE in os.environ:
        from lab.targets.local.sandbox import namespaces

        namespaces.report_arrival()
    arguments = list(sys.argv[1:] if argv is None else argv)
    talk = StderrConsole(stderr=True)

    def verb() -> int | None:
        # `>&-`: the next file that is opened would receive the answer
        remedy = "leave `>&-` out; `>/dev/null` throws the answer away"
        refuse_if(sys.stdout is None, "standard output", "is closed", remedy)
        if (replaced := new_spelling(arguments)) is not None:
            old, new = map(escape, replaced)
            talk.print(f"[bold red]just {old}[/]: is `just {new}` now", highlight=False, soft_wrap=True)
            return 2
        present, renamed = replace_old_options(arguments)
        for old, new in renamed if INSIDE not in os.environ else ():
            talk.print(f"{old}: is {new} now", highlight=False, soft_wrap=True)
        options = parser().parse_args(present, argparse.Namespace(argv=present))
        refuse_empty(options)
        two_forms = getattr(options, "json", False) and getattr(options, "markdown", False)
        refuse_if(two_forms, "--markdown", "--json and --markdown are two forms of one answer", "leave one out")
        return options.verb(options, talk)

    def close() -> None:
        """Release the resources that the command's target has taken, however the command has ended."""
        if "lab.targets" in sys.modules:
            from lab import targets

            targets.close_targets()

    def flush() -> None:
        """Write out everything that stdout still buffers.

        If nobody reads stdout any more, the error occurs here, where it can be handled. At the interpreter's end it
        could not.
        """
        if sys.stdout is not None:
            sys.stdout.flush()

    status = _report_errors(talk, verb)
    closed = _report_errors(talk, close)
    return closed or _report_errors(talk, flush) or status


def _report_errors(talk: Console, function: Callable[[], int | None]) -> int:
    """Call a function and return its exit status; if it raises an error, print the error as one line on stderr.

    Args:
        talk: The console of stderr.
        function: The function, which returns an exit status; None = 0.

    Returns:
        The function's exit status, or the status that belongs to the error.

    """
    try:
        return function() or 0
    except RanInsideError as ended:
        return ended.status
    except LabError as error:
        text = str(error)[len(error.place) :]
        talk.print(f"[bold red]{escape(error.place)}[/]{escape(text)}", highlight=False, soft_wrap=True)
        return error.exit_status
    except SystemExit as error:
        if isinstance(error.__context__, BrokenPipeError):  # rich exits in this way when the reader (`| head`) has gone
            return 0
        raise
    except KeyboardInterrupt:
        talk.print("interrupted", highlight=False, soft_wrap=True)
        return 2
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the reader (`| head`) has gone
        return 0
    except Exception as error:
        if os.environ.get("LAB_DEBUG"):
            raise
        remedy = "this is a defect of the lab: LAB_DEBUG=1 shows where; what was recorded is kept"
        message = f"{type(error).__name__}: {escape(str(error))}\n  {remedy}"
        talk.print(f"[bold red]lab[/]: {message}", highlight=False)
        return 1


if __name__ == "__main__":
    sys.exit(main())
