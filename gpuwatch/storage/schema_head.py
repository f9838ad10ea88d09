"""Where the migrations are, and the newest schema, without importing Alembic or SQLAlchemy (250 ms)."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

from gpuwatch.errors import StoreError


@cache
def newest_schema() -> str:
    """Return the revision of the newest migration, by the files' names; a test compares it with Alembic's answer.

    Raises:
        StoreError: the migrations are missing from this installation.
    """
    names = os.listdir(migrations_folder() / "versions")
    return max(name.partition("_")[0] for name in names if name.endswith(".py") and not name.startswith("_"))


def migrations_folder() -> Path:
    """Return the folder of migrations: in the installed package, or at the top of the checkout."""
    package = Path(__file__).resolve().parents[1]
    for folder in (package / "migrations", package.parent / "migrations"):
        if folder.is_dir():
            return folder
    raise StoreError("the migrations are missing from this installation; reinstall gpuwatch")
