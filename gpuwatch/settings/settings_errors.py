"""Error lines for invalid settings: the place, the key, what was expected."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from pydantic import BaseModel, ValidationError

from gpuwatch import notifiers, providers
from gpuwatch.domain.setup.fields import UnknownName, keys_of, models_in, table_of
from gpuwatch.domain.watches.launch_spec import Budget, LaunchSpec
from gpuwatch.domain.watches.watch import Watch
from gpuwatch.errors import SettingsError
from gpuwatch.settings.external_values import ExternalValue
from gpuwatch.settings.interpolation import ResolvedSettings
from gpuwatch.settings.model import LaunchingSettings, RecordSettings, Settings
from gpuwatch.settings.plugin_options import NOTIFY_OPTIONS, KeyPath, unknown_key
from gpuwatch.settings.sources import Sources
from gpuwatch.settings.watch_rules import HeritableTable

Location = tuple[int | str, ...]
_HEADER = re.compile(r"\s*(\[\[?)\s*([^\[\]]+?)\s*\]")
_KEY = re.compile(r"""\s*([\w\-."']+)\s*=""")
_MISSING = "required key is missing"
_MOST_NAMED = 3
_EXPECTED = {
    "model_type": "expected a table",
    "model_attributes_type": "expected a table",
    "dict_type": "expected a table",
    "tuple_type": "expected a list",
    "too_short": "expected at least one",
    "string_pattern_mismatch": 'expected only letters, digits, "-" and "_"',
    "invalid_key": "expected keys of text",
}
_SECTIONS: dict[str, type[BaseModel]] = {  # whose keys are looked for in one another
    "[[watch]]": table_of(Watch),
    "[watch.launch]": table_of(LaunchSpec),
    "[launch]": table_of(LaunchingSettings),
    "[budget]": table_of(Budget),
    "[record]": table_of(RecordSettings),
}


class InvalidSettings(SettingsError):
    """Invalid settings; `errors` holds the place and text of each error."""

    def __init__(
        self,
        errors: Sequence[tuple[Location, str]],
        sources: Sources,
        tree: Mapping[str, Any],
        origins: Mapping[KeyPath, ExternalValue],
        *,
        has_unknown_names: bool = False,
    ) -> None:
        lines = [error_line(loc, text, sources, tree, origins) for loc, text in errors]
        super().__init__(list(dict.fromkeys(lines)), has_unknown_names=has_unknown_names)
        self.errors = tuple(dict.fromkeys(errors))


def has_unknown_names(error: ValidationError) -> bool:
    """Whether one of the errors is a GPU or a region that the catalogue lacks."""
    return any(
        isinstance(one.get("ctx", {}).get("error"), UnknownName)
        for one in error.errors(include_url=False, include_input=False)
    )


def validation_errors(error: ValidationError, root: type[BaseModel]) -> list[tuple[Location, str]]:
    """The place of each error in the validated table, and what was expected; never the value."""
    errors = []
    for one in error.errors(include_url=False, include_input=False, include_context=False):
        loc: Location = tuple(part for part in one["loc"] if part != "[key]")
        errors.append((loc, _text(one["type"], one["msg"], loc, _inner_model(root, loc[:-1]))))
    return errors


def where_set(errors: Iterable[tuple[Location, str]], resolved: ResolvedSettings) -> list[tuple[Location, str]]:
    """The errors of watches at the table that sets the key, once, with the watches that it concerns."""
    unknown = {loc[1] for loc, _ in resolved.inherited.faults}  # without the keys of their group
    found: dict[Location, tuple[Location, str]] = {}
    inherited: set[tuple[Location, str]] = set()
    for loc, text in sorted(errors, key=lambda error: error[0][:1] == ("watch",)):
        is_missing = len(loc) > 1 and loc[1] in unknown and text.startswith(_MISSING)
        if is_missing:
            continue
        place = resolved.inherited.place_of(loc)
        if place[:1] in {("defaults",), ("group",)}:
            found.setdefault(place, (place, text + _concerned(place, resolved)))
            inherited.add((place[2:], text))
        elif (loc[2:], text) not in inherited:  # else of an entry that the watch's own list takes over
            found[(*place, text)] = (place, text)
    return list(found.values())


def _concerned(place: Location, resolved: ResolvedSettings) -> str:
    names = [_watch_name(resolved.tree, number) for number in resolved.inherited.heirs_of(place)]
    shown = ", ".join(names[:_MOST_NAMED]) + (f" and {more} more" if (more := len(names) - _MOST_NAMED) > 0 else "")
    return f" (watch{'es' if len(names) > 1 else ''} {shown})" if names else ""


def error_line(
    loc: Location, text: str, sources: Sources, tree: Mapping[str, Any], origins: Mapping[KeyPath, ExternalValue]
) -> str:
    """A complete error line."""
    return f"{setting_origin(loc, sources, origins)}: {key_name(loc, tree)}: {text}"


def setting_origin(loc: Location, sources: Sources, origins: Mapping[KeyPath, ExternalValue]) -> str:
    """The variable or credential that set a key, else the file and its line."""
    path = tuple(str(part) for part in loc)
    for length in range(len(path), 0, -1):
        if path[:length] in origins:
            return origins[path[:length]].label
    number = line_number(sources.content.decode("utf-8-sig", "replace"), loc)
    if number:
        return f"{sources.display_name}:{number}"
    return next((origin.label for key, origin in origins.items() if key[: len(path)] == path), sources.display_name)


def key_name(loc: Location, tree: Mapping[str, Any]) -> str:
    """`providers.vastai.poll_every`; a watch is identified by its name: `watch "h100": max_price`."""
    if len(loc) > 1 and loc[0] == "watch" and isinstance(loc[1], int):
        key = _dotted(loc[2:])
        watch_name = _watch_name(tree, loc[1])
        return f"watch {watch_name}: {key}" if key else f"watch {watch_name}"
    return _dotted(loc)


def line_number(text: str, loc: Location) -> int | None:
    """Where the file sets a key, a key below it, or the nearest table above it; None: not in the file."""
    best: tuple[int, int | None] = (0, None)
    for number, path in key_lines(text):
        common = next((i for i, (a, b) in enumerate(zip(path, loc, strict=False)) if a != b), min(len(path), len(loc)))
        if common in (len(path), len(loc)) and common > best[0]:
            best = (common, number)
    return best[1]


def key_lines(text: str) -> Iterator[tuple[int, Location]]:
    """(line number, path) of every header and key, read line by line, without a TOML parser."""
    table: Location = ()
    counts: dict[str, int] = {}
    open_quote: str | None = None  # in a multi-line text
    for number, content in enumerate(text.splitlines(), 1):
        if open_quote:
            open_quote = None if open_quote in content else open_quote
            continue
        header, key = _HEADER.match(content), _KEY.match(content)
        if header:
            table = _table(header[1], _split_key(header[2]), counts)
            yield number, table
        elif key:
            yield number, table + _split_key(key[1])
        open_quote = next((mark for mark in ('"""', "'''") if content.count(mark) % 2), None)


def _table(brackets: str, parts: tuple[str, ...], counts: dict[str, int]) -> Location:
    if parts and parts[0] == "watch" and (brackets == "[[" or "watch" in counts):
        if len(parts) == 1:
            counts["watch"] = counts.get("watch", -1) + 1
        return ("watch", counts.get("watch", 0), *parts[1:])
    return parts


def _split_key(dotted: str) -> tuple[str, ...]:
    return tuple(part.strip(" \"'") for part in dotted.split("."))


def _watch_name(tree: Mapping[str, Any], index: int) -> str:
    try:
        name = tree["watch"][index]["name"]
    except (KeyError, IndexError, TypeError):
        name = None
    return f'"{name[:60]}"' if isinstance(name, str) and name.isprintable() else f"number {index + 1}"


def _dotted(loc: Location) -> str:
    text = ""
    for part in loc:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else str(part)
    return (text if text.isprintable() else ascii(text))[:200]


def _right_section(key: str, table: type[BaseModel]) -> str | None:
    """Where a key stands that another section has; None: none has it."""
    owners = [name for name, section in _SECTIONS.items() if key in section.model_fields]
    sections: tuple[type[BaseModel], ...] = (table_of(Settings), HeritableTable, *_SECTIONS.values())
    if not owners or not issubclass(table, sections):
        return None
    return f"unknown key here; {key} belongs in {' or '.join(owners)}"


def _unknown_key(loc: Location, table: type[BaseModel]) -> str:
    key = str(loc[-1])
    if loc[:-1] == ("providers",):
        return f"unknown provider; {did_you_mean(key, providers.names())}"
    if loc[:-1] == ("notify",):
        return unknown_key(key, (*notifiers.names(), *(spec.name for spec in NOTIFY_OPTIONS)))
    return _right_section(key, table) or unknown_key(key, list(keys_of(table)))


def did_you_mean(name: str, known: Sequence[str]) -> str:
    """The nearest known name, or all of them."""
    from difflib import get_close_matches  # noqa: PLC0415 - only for errors

    matches = get_close_matches(name.lower(), known, n=1, cutoff=0.6)
    return f"did you mean {matches[0]}?" if matches else f"expected one of {', '.join(known)}"


def _text(kind: str, message: str, loc: Location, table: type[BaseModel]) -> str:
    if kind == "extra_forbidden":
        return _unknown_key(loc, table)
    if kind == "missing":
        field = keys_of(table).get(str(loc[-1]))
        return f"{_MISSING}; expected: {(field.description if field else None) or 'a value'}"
    if kind == "tuple_type" and loc == ("watch",):
        return "expected [[watch]], in double brackets"
    if kind in _EXPECTED:
        return _EXPECTED[kind]
    text = message.removeprefix("Value error, ").replace("Input should be", "expected")
    text = text.replace("String should have", "expected")
    text = re.sub(r"Decimal\('([^']*)'\)", r"\1", text)
    text = text.replace("greater than or equal to", "at least").replace("less than or equal to", "at most")
    text = text.replace("greater than", "above").replace("less than", "below").replace("a valid ", "a ")
    text = re.sub(r"^expected (at (?:least|most) [^ ]+)$", r"expected a number of \1", text)
    return re.sub(r"^expected (above|below)", r"expected a number \1", text)


def _inner_model(model: Any, loc: Location) -> type[BaseModel]:
    for part in loc:
        inner_models = models_in(model.model_fields[str(part)].annotation) if part in model.model_fields else []
        model = inner_models[0] if inner_models else model
    return model  # type: ignore[no-any-return]
