"""Emulators of the other providers, one module each, built from their documents and recorded answers.

Each is a `Stage`: a server on loopback with a small market, instances, and faults that can be asked for.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from gpuwatch.emulator.provider_server import ProviderServer

_ENDING: Final = "_cloud"  # `lambda` is no name for a module


def names() -> tuple[str, ...]:
    """The providers that have one, sorted."""
    modules = {path.stem for path in Path(__file__).parent.glob("[a-z]*.py")}
    whole = [name for name in modules if name.rpartition("_")[0] not in modules]  # `aws_pages` is a part of `aws`
    return tuple(sorted(name.removesuffix(_ENDING) for name in whole if _server_in(name) is not None))


def server_of(name: str) -> type[ProviderServer]:
    """The emulator of a provider. Raises KeyError: there is none."""
    for module in (name, name + _ENDING):
        if (Path(__file__).parent / f"{module}.py").is_file() and (found := _server_in(module)) is not None:
            return found
    raise KeyError(name)


def _server_in(module: str) -> type[ProviderServer] | None:
    from gpuwatch.emulator.provider_server import ProviderServer

    found = vars(import_module(f"{__name__}.{module}")).values()
    own = [
        one
        for one in found
        if isinstance(one, type) and issubclass(one, ProviderServer) and one.__module__.endswith(module)
    ]
    return own[0] if own and own[0] is not ProviderServer else None
