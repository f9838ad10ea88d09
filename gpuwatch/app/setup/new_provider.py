"""Create the package of a new provider: a module, a fake server with the conformance kit, and `pyproject.toml`."""

from __future__ import annotations

import re
from importlib.resources import files
from pathlib import Path
from typing import Any, Final

import msgspec

from gpuwatch import providers
from gpuwatch.errors import UsageError
from gpuwatch.installation import DISTRIBUTION

_NAME: Final = re.compile(r"[a-z][a-z0-9_]{0,39}")
_MARK: Final = "WRITE:"


class NewPackage(msgspec.Struct, frozen=True, kw_only=True):
    """The written files. `to_write`: lines left to the author, each covered by a failing test."""

    name: str
    folder: Path
    files: tuple[str, ...]
    to_write: int


def write_package(name: str, into: Path | None = None) -> NewPackage:
    """Write the package into a folder that is new or empty.

    Args:
        into: the folder; None: `gpuwatch-NAME` here.

    Raises:
        UsageError: the name is invalid or taken, or the folder is not empty.
    """
    if not _NAME.fullmatch(name):
        raise UsageError(f"{name!r} is not a valid provider name: use lower-case letters, digits and _")
    if name in providers.names() or _is_module(name):
        raise UsageError(f"{name} is already the name of a provider or module; choose another")
    folder = Path(f"gpuwatch-{name}") if into is None else into
    texts = package_files(name)
    try:
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise UsageError(f"{folder} has files; choose a new or empty folder with --into")
        folder.mkdir(parents=True, exist_ok=True)
        for file, text in texts.items():
            (folder / file).write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{folder}: {error.strerror or error}") from error
    left = sum(text.count(_MARK) for text in texts.values())
    return NewPackage(name=name, folder=folder, files=tuple(texts), to_write=left)


def package_files(name: str) -> dict[str, str]:
    """File name → text. Pure except for reading the templates, which are part of gpuwatch."""
    templates = files("gpuwatch.app.setup") / "provider_skeleton"
    title = name.replace("_", " ").title()
    values = {
        "@NAME@": name,
        "@TITLE@": title,
        "@CLASS@": title.replace(" ", ""),
        "@KEY@": f"{name.upper()}_API_KEY",
        "@DISTRIBUTION@": DISTRIBUTION,
    }
    sources = {
        f"{name}.py": "module.py.txt",
        f"test_{name}.py": "test.py.txt",
        "pyproject.toml": "pyproject.toml.txt",
    }
    return {file: _fill_template((templates / source).read_text("utf-8"), values) for file, source in sources.items()}


def new_package_json(package: NewPackage) -> dict[str, Any]:
    """JSON of what was written."""
    return {
        "name": package.name,
        "folder": str(package.folder),
        "files": list(package.files),
        "to_write": package.to_write,
    }


def _fill_template(text: str, values: dict[str, str]) -> str:
    for mark, value in values.items():
        text = text.replace(mark, value)
    return text


def _is_module(name: str) -> bool:
    from importlib.util import find_spec  # noqa: PLC0415 - only for this command

    return find_spec(name) is not None
