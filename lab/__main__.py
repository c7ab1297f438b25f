"""The command line: arguments to a verb of `lab/commands/`, its errors to lines, its result to an exit status.

Exit status: 0 good; 1 measuring had begun and some cell has no valid sample; 2 wrong usage or a missing prerequisite.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence

from rich.console import Console
from rich.markup import escape

from lab.base.errors import LabError, UsageError
from lab.commands import RanInsideError
from lab.commands.verbs import new_spelling, parser, refuse_empty
from lab.model.names import INSIDE


class Talk(Console):
    """stderr. Where its reader has gone (`2>&1 | head`) it falls silent, and what is measured goes on."""

    def on_broken_pipe(self) -> None:
        self.quiet = True
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())


def main(argv: Sequence[str] | None = None) -> int:
    if INSIDE in os.environ:
        from lab.targets.local.sandbox import namespaces

        namespaces.arrive()
    arguments = list(sys.argv[1:] if argv is None else argv)
    talk = Talk(stderr=True)

    def verb() -> int:
        if sys.stdout is None:  # `>&-`: the next file that is opened would get what is printed
            raise UsageError("standard output", "is closed", "leave `>&-` out; `>/dev/null` throws the answer away")
        if (replaced := new_spelling(arguments)) is not None:
            old, new = map(escape, replaced)
            talk.print(f"[bold red]just {old}[/]: is `just {new}` now", highlight=False, soft_wrap=True)
            return 2
        options = parser().parse_args(arguments, argparse.Namespace(argv=arguments))
        refuse_empty(options)
        if getattr(options, "json", False) and getattr(options, "markdown", False):
            raise UsageError("--markdown", "--json and --markdown are two forms of one answer", "leave one out")
        return int(options.verb(options, talk))

    def close() -> int:
        """What the verb's target took is given back, however the verb ended."""
        if "lab.targets" in sys.modules:
            from lab import targets

            targets.close()
        return 0

    def flush() -> int:
        """What is printed goes out here, not where the interpreter ends: nobody could tell then that the reader has gone."""
        if sys.stdout is not None:
            sys.stdout.flush()
        return 0

    status = _told(talk, verb)
    closed = _told(talk, close)
    return closed or _told(talk, flush) or status


def _told(talk: Console, function: Callable[[], int]) -> int:
    """Its exit status; an error becomes a line."""
    try:
        return function()
    except RanInsideError as ended:
        return ended.status
    except LabError as error:
        rest = str(error)[len(error.place) :]
        talk.print(f"[bold red]{escape(error.place)}[/]{escape(rest)}", highlight=False, soft_wrap=True)
        return error.exit_status
    except SystemExit as error:
        if isinstance(error.__context__, BrokenPipeError):  # rich's own end where the reader (`| head`) has gone
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
        said = f"{type(error).__name__}: {escape(str(error))}\n  {remedy}"
        talk.print(f"[bold red]lab[/]: {said}", highlight=False)
        return 1


if __name__ == "__main__":
    sys.exit(main())
