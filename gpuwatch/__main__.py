"""`gpuwatch` and `python -m gpuwatch`."""

from __future__ import annotations

import sys


def main() -> None:
    """Run one command; every error that a person can mend is one line, never a traceback."""
    if sys.argv[1:] == ["--version"]:  # nothing else is imported: a prompt or a script may ask often
        from gpuwatch import __version__  # noqa: PLC0415

        sys.stdout.write(f"gpuwatch {__version__}\n")
        return
    from gpuwatch.cli import run  # noqa: PLC0415

    sys.exit(run())


if __name__ == "__main__":
    main()
