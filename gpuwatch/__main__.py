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
    arguments = sys.argv[1:]
    if arguments == ["--version"]:  # nothing else is imported: a prompt or a script may ask often
        from gpuwatch import __version__  # noqa: PLC0415

        sys.stdout.write(f"gpuwatch {__version__}\n")
        return
    if arguments in (["--help"], ["-h"]) and _is_wide():
        sys.stdout.write(_prepared_help())
        return
    gc.set_threshold(_START_UP_THRESHOLD)
    from gpuwatch.cli import run  # noqa: PLC0415

    code = run()
    gc.freeze()  # else the interpreter searches every object for garbage once more before it ends
    sys.exit(code)


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
