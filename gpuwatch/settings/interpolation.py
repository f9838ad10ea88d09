"""What the table of a watch stands for: the keys it inherits, then the references of its launch.

`[defaults.watch]` holds keys for all watches, `[group.NAME]` for those with `group = "NAME"`: a group's value overrides
the default's, and the watch's own overrides both (`domain/setup/layered_tables.py`).

References name secrets, the start script file, the SSH key file. A valid one becomes a `Secret`; a malformed one stays
unchanged: the schema reports the error.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from gpuwatch.domain.jobs.job_definition import GROUP_KEYS, RESOURCE_KEYS
from gpuwatch.domain.setup.layered_tables import KeyOf, merge_layers
from gpuwatch.domain.watches.launch_text import (
    check_onstart,
    check_secret,
    check_self_destruct,
    check_url,
    check_value,
    check_word,
)
from gpuwatch.home_folder import expand_home
from gpuwatch.secret import Secret
from gpuwatch.settings.external_values import secret_text
from gpuwatch.settings.sources import Sources

HOOKS = ("on_running", "before_stop", "on_ended")
_KINDS = ("from_env", "from_file")
_PLACEHOLDER = "unresolved"  # valid for every check of the schema; the error is already recorded
_MAX_SCRIPT_BYTES = 1024 * 1024
_VARIABLE = re.compile(r"[A-Z][A-Z0-9]*(_[A-Z0-9]+)*")
Loc = tuple[int | str, ...]


# A key → the inherited ones that it replaces: two ways to say the same.
_REPLACED: Mapping[KeyOf, tuple[KeyOf, ...]] = {
    ("max_price",): (("max_job_cost",), ("job",), ("max_price_cap",), ("deadline",)),
    ("max_job_cost",): (("max_price",), ("max_price_cap",), ("deadline",)),
    ("job", "hours"): (("job", "tokens"),),
    ("job", "tokens"): (("job", "hours"), ("job", "on"), ("job", "speedup")),
    ("launch", "onstart"): (("launch", "onstart_file"),),
    ("launch", "onstart_file"): (("launch", "onstart"),),
    ("launch", "template"): (("launch", "image"), ("launch", "runtype")),
}
_OF_AUTO = ("max_price_cap",), ("deadline",)
DEFAULTS: Loc = ("defaults", "watch")


class InheritedSettings(msgspec.Struct, frozen=True):
    """The tables with every watch as it is with its defaults and its group.

    Attributes:
        places: for each watch, the keys that it does not set itself, and where they are set.
        faults: places and texts.
    """

    tree: dict[str, Any]
    places: tuple[Mapping[KeyOf, Loc], ...] = ()
    faults: tuple[tuple[Loc, str], ...] = ()

    def place_of(self, loc: Loc) -> Loc:
        """Where a key of a watch is set: in its own table, its group or the defaults."""
        if len(loc) > 2 and loc[0] == "watch" and isinstance(loc[1], int) and loc[1] < len(self.places):
            for length in range(len(loc), 2, -1):
                place = self.places[loc[1]].get(tuple(map(str, loc[2:length])))
                if place is not None:
                    return (*place, *loc[length:])
        return loc

    def heirs_of(self, loc: Loc) -> list[int]:
        """The numbers of the watches that get a key, or one below it, from the defaults or a group."""
        return [
            number
            for number, places in enumerate(self.places)
            if any(place[: len(loc)] == loc[: len(place)] for place in places.values())
        ]


def inherit(tree: dict[str, Any]) -> InheritedSettings:
    """Merged tables, with the keys of the defaults and of its group in each watch. The given tables do not change."""
    watches, groups = tree.get("watch"), _groups(tree)
    defaults = tree.get("defaults")
    defaults = defaults.get("watch") if isinstance(defaults, dict) else None
    if not isinstance(watches, list) or not (
        groups or defaults or any(isinstance(one, dict) and "group" in one for one in watches)
    ):
        return InheritedSettings(tree)
    outer: list[tuple[Loc, Any]] = [(DEFAULTS, defaults if isinstance(defaults, dict) else {})]
    merged: list[Any] = []
    places: list[Mapping[KeyOf, Loc]] = []
    faults: list[tuple[Loc, str]] = []
    for number, watch in enumerate(watches):
        name = watch.get("group") if isinstance(watch, dict) else None
        layers = outer + ([(("group", name), groups[name])] if isinstance(name, str) and name in groups else [])
        if isinstance(name, str) and name not in groups:
            faults.append((("watch", number, "group"), unknown_group(name, list(groups))))
        if not isinstance(watch, dict):
            merged.append(watch)
            places.append({})
            continue
        found = merge_layers([*(layer for _, layer in layers), watch], _tables(), _replaced_keys)
        merged.append(found.table)
        places.append({key: (*layers[at][0], *key) for key, at in found.layer_of.items() if at < len(layers)})
    return InheritedSettings(tree | {"watch": merged}, tuple(places), tuple(faults))


def group_tables(tree: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """For each group what a job inherits: of the defaults and of its own keys, those about offers and of every job."""
    defaults = tree.get("defaults")
    outer = defaults.get("watch") if isinstance(defaults, dict) else None
    outer = outer if isinstance(outer, dict) else {}
    merged = {name: merge_layers([outer, one], _tables(), _replaced_keys).table for name, one in _groups(tree).items()}
    of_jobs = (*RESOURCE_KEYS, *GROUP_KEYS)
    return {name: {key: one[key] for key in of_jobs if key in one} for name, one in merged.items()}


def with_group(tree: dict[str, Any], groups: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """The tables of a file with what its group says about offers, when it may start, and what must be ticked."""
    name = tree.get("group")
    group = groups.get(name) if isinstance(name, str) else None
    if not group:
        return tree
    offers = {key: value for key, value in group.items() if key in RESOURCE_KEYS}
    outer = {key: value for key, value in group.items() if key in GROUP_KEYS} | (
        {"resources": offers} if offers else {}
    )
    return merge_layers([outer, tree], {("resources",)}, lambda _: ()).table


def unknown_group(name: str, groups: list[str]) -> str:
    """The text of the error for the name of a group that does not exist."""
    from difflib import get_close_matches  # noqa: PLC0415 - only where a name is wrong

    near = get_close_matches(name, groups, n=1)
    hint = f"did you mean {near[0]}? " if near else ""
    names = ", ".join(groups) or f"none; add [group.{name}]"
    return f"there is no group {name!r}; {hint}groups: {names}"


def _groups(tree: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    groups = tree.get("group")
    return {name: one for name, one in groups.items() if isinstance(one, dict)} if isinstance(groups, dict) else {}


def _replaced_keys(layer: Mapping[str, Any]) -> Iterator[KeyOf]:
    for (*above, name), replaced in _REPLACED.items():
        table: Any = layer
        for part in above:
            table = table.get(part) if isinstance(table, dict) else None
        if isinstance(table, dict) and name in table:
            is_auto = table[name] == "auto"
            yield from (key for key in replaced if not (is_auto and key in _OF_AUTO))


def _tables() -> frozenset[KeyOf]:
    """The keys of a watch that are tables, and merge key by key."""
    from gpuwatch.settings.watch_rules import watch_tables  # noqa: PLC0415 - most files have neither

    return watch_tables()


class ResolvedSettings(msgspec.Struct, frozen=True):
    """The tables with the inherited keys in each watch, and every reference replaced by its value.

    `files` are the files that were read; `faults` are places and texts.
    """

    tree: dict[str, Any]
    inherited: InheritedSettings
    faults: tuple[tuple[Loc, str], ...]
    files: tuple[str, ...]

    def __repr__(self) -> str:
        return f"Resolved({len(self.files)} files, {len(self.faults)} faults)"


def resolve_references(tree: dict[str, Any], sources: Sources) -> ResolvedSettings:
    """Merged tables, with every reference of every launch resolved. The given tables do not change."""
    inherited = inherit(tree)
    watches = inherited.tree.get("watch")
    if not isinstance(watches, list):
        return ResolvedSettings(tree, inherited, (), ())
    reader = _ReferenceReader(sources)
    resolved_watches = [reader.watch(watch, index) for index, watch in enumerate(watches)]
    faults = (*inherited.faults, *reader.faults)
    return ResolvedSettings({**tree, "watch": resolved_watches}, inherited, faults, tuple(reader.files))


def is_reference(value: Any) -> bool:
    """Is it `{ from_env = "…" }` or `{ from_file = "…" }`?"""
    if not isinstance(value, dict) or len(value) != 1:
        return False
    ((kind, name),) = value.items()
    return kind in _KINDS and isinstance(name, str) and bool(name.strip())


class _ReferenceReader:
    """Reads the referenced values, and collects the errors."""

    def __init__(self, sources: Sources) -> None:
        self._sources = sources
        self._folder = sources.file.parent if sources.file else sources.cwd
        self.faults: list[tuple[Loc, str]] = []
        self.files: list[str] = []

    def watch(self, watch: Any, index: int) -> Any:
        launch = watch.get("launch") if isinstance(watch, dict) else None
        if not isinstance(launch, dict):
            return watch
        loc: Loc = ("watch", index, "launch")
        resolved = dict(launch)
        self._resolve_table(resolved, "env", loc, lambda _: check_value)
        self._resolve_table(resolved, "registry", loc, {"password": check_word}.get)
        for hook in HOOKS:
            self._resolve_table(resolved, hook, loc, {"url": check_url, "secret": check_secret}.get)
        self._onstart(resolved, loc)
        self._ssh_key(resolved, loc)
        return {**watch, "launch": resolved}

    def _resolve_table(
        self, launch: dict[str, Any], key: str, loc: Loc, check_of: Callable[[str], Callable[[str], str] | None]
    ) -> None:
        """Replace the references in one table of a launch."""
        table = launch.get(key)
        if isinstance(table, dict):
            launch[key] = {
                name: self._secret(value, (*loc, key, name), check)
                if (check := check_of(name)) and is_reference(value)
                else value
                for name, value in table.items()
            }

    def _secret(self, reference: Mapping[str, str], loc: Loc, check: Callable[[str], str]) -> Secret:
        ((kind, name),) = reference.items()
        try:
            text, origin = self._variable(name) if kind == "from_env" else self._file(name)
            return Secret(check(text), origin=origin)
        except ValueError as error:
            self.faults.append((loc, f"{kind}: {error}"))
            return Secret(_PLACEHOLDER)

    def _variable(self, name: str) -> tuple[str, str]:
        """The text and its origin."""
        text, origin = self._sources.env.get(name), f"env {name}"
        if not text and (text := self._sources.dotenv.get(name)):
            self.files.append(str(self._sources.cwd / ".env"))
            origin += " (.env)"
        if not text:  # the name may be the secret itself, pasted by mistake: no log may show it
            shown_name = name if _VARIABLE.fullmatch(name) else "the one named here"
            raise ValueError(f"expected an environment variable with a value; {shown_name} is unset or empty")
        return text, origin

    def _file(self, name: str) -> tuple[str, str]:
        """The text and its origin."""
        path = self._path(name)
        shown_path = path if name.startswith(("/", "~", ".")) else "the one named here"
        try:
            text = secret_text(path)
        except ValueError as error:
            raise ValueError(f"expected a text file; {shown_path} {error}") from None
        self.files.append(str(path))
        return text, f"file {path}"

    def _onstart(self, launch: dict[str, Any], loc: Loc) -> None:
        """`onstart_file` becomes `onstart`; if both are set, `watch_rules` reports an error."""
        name = launch.get("onstart_file")
        if not isinstance(name, str) or not name.strip() or "onstart" in launch:
            return
        del launch["onstart_file"]
        launch["onstart"] = _PLACEHOLDER
        path = self._path(name)
        loc = (*loc, "onstart_file")
        try:
            text = secret_text(path).replace("\r\n", "\n")
        except ValueError as error:
            self.faults.append((loc, f"expected a script; {path} {error}"))
            return
        try:
            script = check_onstart(text)
            launch["onstart"] = check_self_destruct(script) if launch.get("self_destruct") is True else script
        except ValueError as error:
            self.faults.append((loc, str(error)))

    def _ssh_key(self, launch: dict[str, Any], loc: Loc) -> None:
        name = launch.get("ssh_key")
        if not isinstance(name, str) or not name.strip():
            return
        path = self._path(name)
        launch["ssh_key"] = str(path)
        self.files.append(str(path))
        if not path.is_file() or not os.access(path, os.R_OK):
            self.faults.append(((*loc, "ssh_key"), f"expected a readable file; cannot read {path}"))

    def _path(self, name: str) -> Path:
        try:
            return self._folder / expand_home(name.strip())
        except OSError:  # unknown user in ~user, or no home: reading it is what fails
            return self._folder / name.strip()


def script_text(text: str, folder: Path) -> str:
    """The text itself if it has several lines or starts with `#!`, else the contents of the file it names."""
    if "\n" in text.strip() or text.startswith("#!"):
        return text
    try:
        with (folder / text).open("rb") as file:
            content = file.read(_MAX_SCRIPT_BYTES + 1)
        if len(content) > _MAX_SCRIPT_BYTES:
            raise ValueError("expected a script of at most 1 MB; let it download larger files")
        return content.decode()
    except OSError as error:
        raise ValueError(f"expected a script, or the path of its file: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ValueError("expected a script in UTF-8 text") from None
