"""Emulators of the providers other than vast.ai, one module each, written from their documents and recorded answers.

Each is a `ProviderServer`, or serves as one does: on loopback, with a small market, instances, and faults on demand.
"""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path
from typing import Any, Final

_ENDING: Final = "_cloud"  # `lambda` cannot be the name of a module
# Found in the text: importing all of them loads the vendors' libraries.
_SERVER: Final = re.compile(r"^class .*\bProviderServer\b|^    def at\(", re.MULTILINE)


def names() -> tuple[str, ...]:
    """The providers that have an emulator, sorted."""
    modules = {path.stem for path in Path(__file__).parent.glob("[a-z]*.py")}
    whole = [name for name in modules if name.rpartition("_")[0] not in modules]  # `aws_pages` is a part of `aws`
    return tuple(sorted(name.removesuffix(_ENDING) for name in whole if _SERVER.search(_file(name).read_text())))


def server_of(name: str) -> type[Any]:
    """The emulator of a provider. Raises KeyError: there is none."""
    for module in (name, name + _ENDING):
        if _file(module).is_file() and (found := _server_in(module)) is not None:
            return found
    raise KeyError(name)


def _file(module: str) -> Path:
    return Path(__file__).parent / f"{module}.py"


def _server_in(module: str) -> type[Any] | None:
    """Return the class of a module that can be served at a port, and is defined there."""
    found = [var for var in vars(import_module(f"{__name__}.{module}")).values() if isinstance(var, type)]
    own = [var for var in found if hasattr(var, "at") and var.__module__.endswith(f".{module}")]
    return own[0] if own else None
