"""The registry of providers and of alert channels: the built-in ones and those of other packages.

A built-in one is a module or folder of `gpuwatch.providers` or `gpuwatch.notifiers`; another package names its module
in an entry point of that group. Both hold `INFO`, a declaration, and `build`. `gpuwatch.plugin_api` holds what another
package may import.
"""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Iterator, Mapping
from functools import cached_property
from importlib import import_module
from importlib.metadata import EntryPoint, distributions
from pathlib import Path
from pkgutil import iter_modules
from typing import Any, Final, Generic, TypeVar, cast

log = logging.getLogger(__name__)

Declaration = TypeVar("Declaration")
_NAME: Final = r"[a-z](?:_?[a-z0-9])*"  # it is part of a variable's name, and a column of the store
_NAME_MAX: Final = 32
_TOOLKIT: Final = "toolkit"  # what the built-in ones share


class PluginRegistry(Generic[Declaration]):
    """The providers, or the channels. A plugin that cannot be used is logged once, in one line, and left out.

    Args:
        group: the package of the built-in ones, which is also the group of entry points: "gpuwatch.providers".
        declaration: the type of every `INFO`.
    """

    def __init__(self, group: str, declaration: type[Declaration]) -> None:
        self._group = group
        self._declaration = declaration
        self._found: dict[tuple[str, ...], dict[str, Any]] = {}
        self._broken: dict[str, str] = {}

    def names(self) -> tuple[str, ...]:
        """All of them, sorted: the built-in ones and plugins."""
        return tuple(sorted({*self.built_in, *self._plugins()}))

    @cached_property
    def built_in(self) -> frozenset[str]:
        """The names of ours: the public modules and folders of the package, but for its toolkit."""
        found = {module.name for module in iter_modules([str(Path(__file__).with_name(self._group.partition(".")[2]))])}
        return frozenset(name for name in found if not name.startswith("_") and name != _TOOLKIT)

    def info(self, name: str) -> Declaration:
        """What one declares. Raises KeyError: there is none of that name."""
        return cast(Declaration, self.target(name).INFO)

    def target(self, name: str) -> Any:
        """The module, or a plugin's object, with `INFO` and `build`. Raises KeyError."""
        if name in self.built_in:
            return import_module(f"{self._group}.{name}")
        return self._plugins()[name]

    def broken(self) -> Mapping[str, str]:
        """The plugins that are left out: name → why."""
        self._plugins()
        return dict(self._broken)

    def _plugins(self) -> Mapping[str, Any]:
        """Name → module or object, of all that can be used; searched for once in a process."""
        places = tuple(sys.path)
        if places not in self._found:
            self._found[places] = {}  # a plugin that asks for names while it is loaded sees the built-in ones
            self._found[places] = self._load()
        return self._found[places]

    def _load(self) -> dict[str, Any]:
        loaded: dict[str, Any] = {}
        taken: dict[str, str] = {}  # name → what the first package of that name loads
        for package, point in _entry_points(self._group):
            if taken.setdefault(point.name, point.value) != point.value:
                self._leave_out(package, point, "another package already uses that name")
            elif point.name not in loaded:  # of two copies of a package the first is imported
                fault, target = self._try_load(point)
                if fault is None:
                    loaded[point.name] = target
                else:
                    self._leave_out(package, point, fault)
        return loaded

    def _try_load(self, point: EntryPoint) -> tuple[str | None, Any]:
        if point.name in self.built_in:
            return "gpuwatch has a built-in of that name", None
        if not re.fullmatch(_NAME, point.name) or len(point.name) > _NAME_MAX:
            return f"a name may contain lower-case letters, digits and single _, at most {_NAME_MAX} characters", None
        try:
            target = point.load()
            return self._why_unusable(point.name, target), target
        except Exception as error:  # a plugin's import may do anything
            return f"{type(error).__name__}: {_one_line(error)}", None

    def _why_unusable(self, name: str, target: Any) -> str | None:
        info = getattr(target, "INFO", None)
        if not isinstance(info, self._declaration):
            return f"its module has no INFO of type {self._declaration.__name__}"
        if getattr(info, "name", None) != name:
            return f"its INFO.name is {getattr(info, 'name', None)!r}"
        return None if callable(getattr(target, "build", None)) else "its module has no function build"

    def _leave_out(self, package: str, point: EntryPoint, fault: str) -> None:
        self._broken[point.name] = fault
        kind = self._group.rpartition(".")[2].removesuffix("s")
        log.warning("ignoring the %s %s of %s: %s", kind, _one_line(point.name), _one_line(package), fault)


def _entry_points(group: str) -> Iterator[tuple[str, EntryPoint]]:
    """The package and the entry point of all that installed packages declare, in the order of `sys.path`."""
    for package in distributions():
        try:
            points = package.entry_points.select(group=group)
            name = f"{package.metadata['Name']}-{package.version}" if points else ""
        except Exception as error:  # another package's metadata may hold anything, and none of it must stop gpuwatch
            log.debug("metadata that cannot be read: %s", error)
            continue
        yield from ((name, point) for point in points)


def _one_line(value: object) -> str:
    text = " ".join(str(value).split())[:200]
    return text if text.isprintable() else ascii(text)
