"""The registry of providers and of alert channels: the built-in ones and those of other packages, found the same way.

A built-in one is a module or folder of `gpuwatch.providers` or `gpuwatch.notifiers`; another package names its module
in an entry point of the same name. Both hold `INFO`, a declaration, and `build`. `gpuwatch.plugin_api` holds what
another package may import.

The metadata of installed packages is read here directly: `importlib.metadata` costs 40 ms at every start, this less
than one. Entry points of packages inside zip files are not found.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Collection, Iterator, Mapping
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, Final, Generic, NamedTuple, TypeVar, cast

Declaration = TypeVar("Declaration")
_NAME: Final = r"[a-z](?:_?[a-z0-9])*"  # it is part of a variable's name, and a column of the store
_NAME_MAX: Final = 32
_SECTION: Final = r"\s*\[\s*([^\]]+?)\s*\]"
_MARK: Final = b"gpuwatch."
_TOOLKIT: Final = "toolkit"  # what the built-in ones share


class EntryPoint(NamedTuple):
    """One line of a package's `entry_points.txt`."""

    group: str
    name: str
    target: str  # "package.module" or "package.module:object"
    package: str  # "gpuwatch_mycloud-1.0", for a person


class PluginRegistry(Generic[Declaration]):
    """The providers, or the channels. A plugin that cannot be used is logged once, in one line, and left out.

    Args:
        group: the package of the built-in ones, which is also the group of entry points: "gpuwatch.providers".
        declaration: the type of every `INFO`.
    """

    def __init__(self, group: str, declaration: type[Declaration]) -> None:
        self._group = group
        self._declaration = declaration
        self._folder = Path(__file__).with_name(group.rpartition(".")[2])
        self._found: dict[tuple[str, ...], dict[str, Any]] = {}
        self._broken: dict[str, str] = {}

    def names(self) -> tuple[str, ...]:
        """All of them, sorted: the built-in ones and plugins."""
        return tuple(sorted({*self.built_in(), *self._plugins()}))

    def built_in(self) -> frozenset[str]:
        """The names of ours: the public modules and folders of the package, but for its toolkit."""
        return _modules_in(self._folder)

    def info(self, name: str) -> Declaration:
        """What one declares. Raises KeyError: there is none of that name."""
        return cast(Declaration, self.target(name).INFO)

    def target(self, name: str) -> Any:
        """The module, or a plugin's object, with `INFO` and `build`. Raises KeyError."""
        if name in self.built_in():
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
            self._found[places] = self._load([point for point in entry_points(places) if point.group == self._group])
        return self._found[places]

    def _load(self, points: Collection[EntryPoint]) -> dict[str, Any]:
        loaded: dict[str, Any] = {}
        for point in points:
            if point.name in loaded:
                self._leave_out(point, "another package already uses that name")
                continue
            fault, target = self._try_load(point)
            if fault is None:
                loaded[point.name] = target
            else:
                self._leave_out(point, fault)
        return loaded

    def _try_load(self, point: EntryPoint) -> tuple[str | None, Any]:
        if point.name in self.built_in():
            return "gpuwatch has a built-in of that name", None
        if not re.fullmatch(_NAME, point.name) or len(point.name) > _NAME_MAX:
            return f"a name may contain lower-case letters, digits and single _, at most {_NAME_MAX} characters", None
        try:
            target = _load_target(point.target)
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

    def _leave_out(self, point: EntryPoint, fault: str) -> None:
        import logging  # noqa: PLC0415 - most starts have nothing to log

        self._broken[point.name] = fault
        kind = self._group.rpartition(".")[2].removesuffix("s")
        logging.getLogger("gpuwatch.plugins").warning(
            "ignoring the %s %s of %s: %s", kind, _one_line(point.name), _one_line(point.package), fault
        )


@cache
def _modules_in(folder: Path) -> frozenset[str]:
    names = {path.stem for path in folder.iterdir() if path.suffix == ".py" or (path / "__init__.py").is_file()}
    return frozenset(name for name in names if not name.startswith("_") and name != _TOOLKIT)


@cache
def entry_points(places: tuple[str, ...]) -> tuple[EntryPoint, ...]:
    """Everything below "gpuwatch." that installed packages declare, in the order of `sys.path`."""
    by_name: dict[str, tuple[EntryPoint, ...]] = {}
    for place in places:
        for folder in _metadata(place):
            package = folder.rpartition(".")[0]
            points = tuple(_read(os.path.join(place or ".", folder), package))
            if points and _project(package) not in by_name:  # of two copies the first is imported
                by_name[_project(package)] = points
    return tuple(point for points in by_name.values() for point in points)


def _metadata(place: str) -> list[str]:
    try:
        return sorted(name for name in os.listdir(place or ".") if name.endswith((".dist-info", ".egg-info")))
    except OSError:
        return []


def _read(folder: str, package: str) -> Iterator[EntryPoint]:
    path = os.path.join(folder, "entry_points.txt")
    try:
        with open(path, "rb", buffering=0) as opened:
            content = opened.read(1_000_000)
        if _MARK not in content:
            return
    except OSError:
        return
    group = ""
    for line in content.decode("utf-8", "replace").splitlines():
        header = re.match(_SECTION, line)
        name, equals, target = line.partition("=")
        if header:
            group = header[1]
        elif equals and group.startswith(_MARK.decode()) and not line.lstrip().startswith(("#", ";")):
            yield EntryPoint(group, name.strip(), target.partition("[")[0].strip(), package)


def _load_target(target: str) -> Any:
    module, _, path = target.partition(":")
    target_: Any = import_module(module.strip())
    for part in filter(None, path.strip().split(".")):
        target_ = getattr(target_, part)
    return target_


def _project(package: str) -> str:
    return re.sub(r"[-_.]+", "-", package.partition("-")[0]).lower()


def _one_line(value: object) -> str:
    text = " ".join(str(value).split())[:200]
    return text if text.isprintable() else ascii(text)
