"""`gpuwatch` and `python -m gpuwatch`."""

from __future__ import annotations

import gc
import os
import sys

# Modules that load make no garbage: looking for some every 700 objects takes 3 % of a check. The daemon takes the usual
# thresholds back (`daemon.process.running`).
_START_UP_THRESHOLD = 100_000


def main() -> None:
    """Run one command; every error that a person can fix is one line, never a traceback."""
    _replace_closed_streams()
    arguments = sys.argv[1:]
    if arguments == ["--version"]:  # nothing else is imported: a prompt or a script may ask often
        from gpuwatch import __version__  # noqa: PLC0415

        sys.exit(_written(f"gpuwatch {__version__}\n"))
    if arguments in (["--help"], ["-h"]) and _is_wide():
        sys.exit(_written(_prepared_help()))
    gc.set_threshold(_START_UP_THRESHOLD)
    from gpuwatch.cli import run  # noqa: PLC0415

    code = run()
    gc.freeze()  # else the interpreter searches every object for garbage once more before it ends
    sys.exit(code)


def _replace_closed_streams() -> None:
    """Write to nowhere what was closed (`>&-`): otherwise the store could be opened in its place, and be written to."""
    for name in ("stdin", "stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "r" if name == "stdin" else "w", encoding="utf-8"))  # noqa: SIM115


def _written(text: str) -> int:
    """Write to standard output, and return the exit code."""
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except OSError as error:
        from gpuwatch.cli import report_unwritten  # noqa: PLC0415

        return report_unwritten(error)
    return 0


def _prepared_help() -> str:
    """What click would print, 30 ms earlier; a test keeps the two alike."""
    with open(os.path.join(os.path.dirname(__file__), "cli", "help.txt"), encoding="ascii") as prepared:
        return prepared.read()


def _is_wide() -> bool:
    """Eighty columns or more, or no terminal: click lays its help out alike for all of them."""
    reported = os.environ.get("COLUMNS")
    if reported is not None:
        return reported.isdecimal() and int(reported) >= 80
    try:
        return os.get_terminal_size(sys.stdout.fileno()).columns >= 80
    except (OSError, ValueError):
        return True


if __name__ == "__main__":
    main()
