"""What other packages add to gpuwatch: their entry points, found quickly, and loaded so that none breaks the rest.

The metadata of installed packages is read here directly: `importlib.metadata` costs 40 ms at every start, and this less
than one. What lies in a zip file is not found.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import cache
from importlib import import_module
from typing import Any, Final, NamedTuple

_NAME: Final = re.compile(r"[a-z](?:_?[a-z0-9])*")  # part of a variable's name, and a column of the store
_NAME_MAX: Final = 32
_SECTION: Final = re.compile(r"\s*\[\s*([^\]]+?)\s*\]")
_MARK: Final = b"gpuwatch."


class EntryPoint(NamedTuple):
    """One line of a package's `entry_points.txt`."""

    group: str
    name: str
    target: str  # "package.module" or "package.module:object"
    package: str  # "gpuwatch_mycloud-1.0", for a person
    stamp: str  # changes when another version is installed


class Plugin(NamedTuple):
    """What stands behind an entry point, loaded."""

    name: str
    target: Any  # a module or object
    stamp: str


class Plugins:
    """The plugins of one group. What is wrong with one is logged once, in one line, and it is left out.

    Args:
        group: of entry points, "gpuwatch.providers".
        taken: names that no plugin may have.
        why_not: what is wrong with a loaded target, of that name; None: nothing.
    """

    def __init__(
        self, group: str, taken: Callable[[], Collection[str]], why_not: Callable[[str, Any], str | None]
    ) -> None:
        self._group = group
        self._taken = taken
        self._why_not = why_not
        self._found: dict[tuple[str, ...], dict[str, Plugin]] = {}
        self.broken: dict[str, str] = {}  # name → why it is left out

    def found(self) -> Mapping[str, Plugin]:
        """Name → plugin, of all that can be used; looked for once in a process."""
        places = tuple(sys.path)
        if places not in self._found:
            self._found[places] = {}  # a plugin that asks for names while it is loaded sees the built-in ones
            self._found[places] = self._load([one for one in entry_points(places) if one.group == self._group])
        return self._found[places]

    def _load(self, points: Collection[EntryPoint]) -> dict[str, Plugin]:
        loaded: dict[str, Plugin] = {}
        for point in points:
            if point.name in loaded:
                self._leave_out(point, "another package has that name already")
                continue
            why, target = self._try(point)
            if why is None:
                loaded[point.name] = Plugin(point.name, target, f"{point.stamp} {_stamp_of(target)}")
            else:
                self._leave_out(point, why)
        return loaded

    def _try(self, point: EntryPoint) -> tuple[str | None, Any]:
        if point.name in self._taken():
            return "gpuwatch has that name itself", None
        if not _NAME.fullmatch(point.name) or len(point.name) > _NAME_MAX:
            return f"a name is of small letters, digits and single _, at most {_NAME_MAX}", None
        try:
            target = _loaded(point.target)
            return self._why_not(point.name, target), target
        except Exception as error:  # whatever a stranger's code does at its import
            return f"{type(error).__name__}: {_one_line(error)}", None

    def _leave_out(self, point: EntryPoint, why: str) -> None:
        import logging  # noqa: PLC0415 most starts have nothing to tell

        self.broken[point.name] = why
        kind = self._group.rpartition(".")[2].removesuffix("s")
        logging.getLogger("gpuwatch.plugins").warning(
            "the %s %s of %s is left out: %s", kind, _one_line(point.name), _one_line(point.package), why
        )


@cache
def entry_points(places: tuple[str, ...]) -> tuple[EntryPoint, ...]:
    """Everything below "gpuwatch." that installed packages declare, in the order of `sys.path`."""
    found: dict[str, tuple[EntryPoint, ...]] = {}
    for place in places:
        for folder in _metadata(place):
            package = folder.rpartition(".")[0]
            points = tuple(_read(os.path.join(place or ".", folder), package))
            if points and _project(package) not in found:  # of two copies the first is imported
                found[_project(package)] = points
    return tuple(point for points in found.values() for point in points)


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
        stamp = f"{package} {os.stat(path).st_mtime_ns}"
    except OSError:
        return
    group = ""
    for line in content.decode("utf-8", "replace").splitlines():
        header = _SECTION.match(line)
        name, equals, target = line.partition("=")
        if header:
            group = header[1]
        elif equals and group.startswith(_MARK.decode()) and not line.lstrip().startswith(("#", ";")):
            yield EntryPoint(group, name.strip(), target.partition("[")[0].strip(), package, stamp)


def _loaded(target: str) -> Any:
    module, _, path = target.partition(":")
    found: Any = import_module(module.strip())
    for part in filter(None, path.strip().split(".")):
        found = getattr(found, part)
    return found


def _stamp_of(target: Any) -> str:
    """Changes when the plugin's file does: a working copy keeps its version."""
    home = target if hasattr(target, "__file__") else sys.modules.get(getattr(target, "__module__", ""))
    path = getattr(home, "__file__", None)
    try:
        about = os.stat(path or "")
    except OSError:
        return ""
    return f"{about.st_mtime_ns} {about.st_size}"


def _project(package: str) -> str:
    return re.sub(r"[-_.]+", "-", package.partition("-")[0]).lower()


def _one_line(value: object) -> str:
    text = " ".join(str(value).split())[:200]
    return text if text.isprintable() else ascii(text)
