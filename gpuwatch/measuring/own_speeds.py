"""The file of the owner's measurements: rows are appended, never changed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from gpuwatch.atomic_file import atomic_file
from gpuwatch.domain.plan.own_rows import OwnRow

FILE: Final = "measured-speeds.toml"  # in the state folder
_KEPT: Final = "surrogateescape"  # what is not UTF-8 stays as it is; whoever reads the file says so
_HEAD: Final = "# Own measurements, as rows of gpuwatch's throughput.toml; `gpuwatch plan` prefers them.\n"


def add_own_rows(path: Path, rows: Sequence[OwnRow]) -> int:
    """Append rows to the file, except those that it has; returns how many were added. Raises OSError."""
    before = path.read_text(encoding="utf-8", errors=_KEPT) if path.exists() else _HEAD
    new = [row for row in rows if f'key = "{row.key}"\n' not in before]
    if new:
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_file(path, is_durable=True) as part:
            text = "\n".join([before.rstrip("\n"), *("\n" + row.toml.rstrip("\n") for row in new), ""])
            part.write_text(text, encoding="utf-8", errors=_KEPT)
    return len(new)
