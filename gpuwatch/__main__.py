"""`gpuwatch` and `python -m gpuwatch`."""

from __future__ import annotations

import gc
import os
import sys


def main() -> None:
    """Run one command; every error that a person can fix is one line, never a traceback."""
    _replace_closed_streams()
    from gpuwatch.cli import run  # noqa: PLC0415 it may open files, which must not take the place of a closed stream

    code = run()
    gc.freeze()  # else the interpreter searches every object for garbage once more before it ends
    sys.exit(code)


def _replace_closed_streams() -> None:
    """Write to nowhere what was closed (`>&-`): otherwise the store could be opened in its place, and be written to."""
    for name in ("stdin", "stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "r" if name == "stdin" else "w", encoding="utf-8"))  # noqa: SIM115


if __name__ == "__main__":
    main()
