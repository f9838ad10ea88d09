"""Resolves the references of `[watch.launch]`: secrets, the start script file, the SSH key file.

A valid reference becomes a `Secret`; a malformed one stays unchanged: the schema reports the error.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec

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
_VARIABLE = re.compile(r"[A-Z][A-Z0-9]*(_[A-Z0-9]+)*")
Loc = tuple[int | str, ...]


class ResolvedSettings(msgspec.Struct, frozen=True):
    """The tables with every reference replaced by its value.

    `files` are the files that were read; `faults` are places and texts.
    """

    tree: dict[str, Any]
    faults: tuple[tuple[Loc, str], ...]
    files: tuple[str, ...]

    def __repr__(self) -> str:
        return f"Resolved({len(self.files)} files, {len(self.faults)} faults)"


def resolve_references(tree: dict[str, Any], sources: Sources) -> ResolvedSettings:
    """Merged tables, with every reference of every launch resolved. The given tables do not change."""
    watches = tree.get("watch")
    if not isinstance(watches, list):
        return ResolvedSettings(tree, (), ())
    reader = _ReferenceReader(sources)
    resolved_watches = [reader.watch(watch, index) for index, watch in enumerate(watches)]
    return ResolvedSettings({**tree, "watch": resolved_watches}, tuple(reader.faults), tuple(reader.files))


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
