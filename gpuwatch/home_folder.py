"""The user's home folder, for paths that begin with `~`; a user without a passwd entry and HOME has none."""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping
from pathlib import Path


def expand_home(path: str | Path) -> Path:
    """Replace a leading `~` or `~user`. Raises OSError: there is no such home folder; never a folder named `~`."""
    try:
        expanded = Path(path).expanduser()
    except RuntimeError:
        raise OSError(
            errno.ENOENT, "no home folder for ~: set HOME, or write the whole path", os.fspath(path)
        ) from None
    if str(path).startswith("~") and not expanded.is_absolute():  # HOME is not a whole path
        raise OSError(errno.ENOENT, "HOME is not a whole path: set it, or write the whole path", os.fspath(path))
    return expanded


def home_folder(env: Mapping[str, str]) -> Path | None:
    """`$HOME`, or the home folder of the user's passwd entry; None: there is none."""
    home = env.get("HOME") or os.path.expanduser("~")
    return Path(home) if os.path.isabs(home) else None


def xdg_folder(env: Mapping[str, str], name: str) -> Path | None:
    """A folder of the XDG Base Directory specification, which ignores paths that are not absolute."""
    value = env.get(name) or ""
    return Path(value) if os.path.isabs(value) else None
