"""A source's declaration: its URL, the path to its rows, the meaning of their fields. One TOML file each.

A path to rows is keys separated by dots; `*` goes through a list or the values of an object: "items.*.prices.*". A row
keeps its context. A path to a field starts at the row; `../` is the parent (the object that the preceding `*` went
through), `@key` the row's own key, `.` the row itself, `@place` the requested place.
docs/providers/pricelist.md explains every key. An error in a declaration is reported in one line.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

import msgspec

from gpuwatch.errors import PayloadChanged
from gpuwatch.home_folder import expand_home
from gpuwatch.providers.toolkit.validation import at, word

ROWS_MAX: Final = 200_000
TEXT_MAX: Final = 120
_ROWS_PATH = re.compile(r"(?:[\w@ -]+|\*)(?:\.(?:[\w@ -]+|\*))*")
_FIELD_PATH = re.compile(r"@place|(?:\.\./){0,5}(?:@key|\.|[\w -]+(?:\.[\w -]+)*)")
_BRACES = re.compile(r"\{([^{}]*)\}")

Row = tuple[tuple[str, Any], ...]  # key and value of all parents of the row, outermost first; the last is the row


class _Field(NamedTuple):
    parents_up: int
    keys: tuple[str, ...]


def check_rows_path(path: str) -> None:
    """Check a path to rows. Raises ValueError."""
    if not _ROWS_PATH.fullmatch(path) or "*" not in path.split("."):
        raise ValueError(f"rows: expected a path to rows, such as data.*.prices.*, not {path!r}")


def check_field_path(path: str) -> None:
    """Check a path, or a template with paths in braces. Raises ValueError."""
    for one in _BRACES.findall(path) if "{" in path else [path]:
        if not _FIELD_PATH.fullmatch(one):
            raise ValueError(f"expected a path to a field, such as price.hourly or ../id, not {path!r}")


def rows_of(value: object, path: str, place: str = "") -> list[Row]:
    """Return all rows of an answer.

    Raises:
        PayloadChanged: the path leads to no list or object, or there are far too many rows.
    """
    rows: list[Row] = [((place, value),)]
    for level, keys in enumerate(_levels(path)):
        if level == 0 and not isinstance(at(value, *keys), list | dict):
            raise PayloadChanged(f"no rows at {path}")
        children: list[Row] = []
        for row in rows:
            children += [(*row, pair) for pair in _children(at(row[-1][1], *keys))]
            if len(children) > ROWS_MAX:
                raise PayloadChanged(f"more than {ROWS_MAX} rows")
        rows = children
    return rows


def count_entries(value: object, path: str) -> int:
    """Return the number of entries of the outermost list or object of rows, to detect a full page."""
    rows = at(value, *_levels(path)[0])
    return len(rows) if isinstance(rows, list | dict) else 0


def field_value(row: Row, path: str) -> Any:
    """Return the value at a path, relative to a row; None: nothing."""
    if path == "@place":
        return row[0][0] or None
    parents_up, keys = _parse_path(path)
    if parents_up >= len(row):
        return None
    key, value = row[-1 - parents_up]
    if keys == ("@key",):
        return key
    return value if keys == (".",) else at(value, *keys)


def first_value(row: Row, paths: Sequence[str]) -> Any:
    """Return the value at the first path that has one."""
    return next((found for path in paths if (found := field_value(row, path)) is not None), None)


def template_texts(row: Row, templates: Sequence[str]) -> Iterator[str]:
    """Return the cleaned texts of templates for a row, in order; leaves out texts without a value.

    A template without braces is a path.
    """
    for template in templates:
        filled = _BRACES.sub(lambda found: _text(field_value(row, found[1])), template) if "{" in template else None
        cleaned = _text(" ".join(filled.split())) if filled is not None else _text(field_value(row, template))
        if cleaned:
            yield cleaned


def first_text(row: Row, templates: Sequence[str]) -> str | None:
    """Return the first of `template_texts`."""
    return next(template_texts(row, templates), None)


def field_matches(row: Row, path: str, wanted: Sequence[str]) -> bool:
    """Whether a field, or an entry if it is a list, is one of these texts. A boolean is "true" or "false"."""
    value = field_value(row, path)
    return any(_value_text(one) in wanted for one in (value if isinstance(value, list) else [value]))


def _text(value: object) -> str:
    if isinstance(value, int) and not isinstance(value, bool):
        value = format(value) if abs(value) < 10**18 else ""
    return word(value, TEXT_MAX) or ""


def _value_text(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return value if isinstance(value, str) else _text(value)


@cache
def _levels(path: str) -> tuple[tuple[str, ...], ...]:
    """Return the keys before each `*`."""
    levels, keys = [], list[str]()
    for step in path.split("."):
        if step == "*":
            levels.append(tuple(keys))
            keys = []
        else:
            keys.append(step)
    return tuple(levels)


@cache
def _parse_path(path: str) -> _Field:
    parents_up = 0
    while path.startswith("../"):
        parents_up, path = parents_up + 1, path[3:]
    return _Field(parents_up, (path,) if path == "." else tuple(path.split(".")))


def _children(value: object) -> list[tuple[str, Any]]:
    if isinstance(value, dict):
        return list(value.items())
    return [("", one) for one in value] if isinstance(value, list) else []


Paths = str | tuple[str, ...]  # one path, or several: the first one with a value counts
_FOLDER: Final = Path(__file__).parent / "sources"
_MAX_BYTES: Final = 256 * 1024  # bytes of a declaration
_NAME: Final = re.compile(r"[a-z0-9][a-z0-9-]{0,23}")
_URL: Final = re.compile(r"https://[^\s/?#@]+[^\s?#]*|http://(?:127\.0\.0\.1|localhost|\[::1\])(?::\d+)?(?:/[^\s?#]*)?")
_MIN_EVERY_S: Final = 60.0


class FieldPaths(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Paths to the parts of an offer, relative to a row. Names may be templates: "{model} {interface}"."""

    price: Paths
    spot_price: Paths = ()
    gpu: Paths = ()
    count: Paths = ()  # of GPUs in the machine
    memory: Paths = ()
    machine: Paths = ()  # the source's name of the configuration
    host: Paths = ()  # a stable name of the individual machine, if the source has one
    region: Paths = ()
    country: Paths = ()
    currency: Paths = ()
    tier: Paths = ()  # for spot, its value is in `spot_tiers`
    free: Paths = ()  # GPUs or machines that are available now
    least_count: Paths = ()  # minimum GPU count of an order: the machine is sold in parts
    vcpu: Paths = ()
    ram: Paths = ()


class DeclaredMachine(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The hardware of the machines with a matching name, if the source does not state it, or states it wrong."""

    match: str  # a regular expression for the whole name; its group `count` is the GPU count
    gpu: str | None = None
    count: int | None = None
    card_gib: float | None = None  # memory of the whole card, to identify fractions of it
    type: str | None = None  # the name to show instead of the source's own
    price_scale: float = 1.0  # 60 if the price is per minute
    note: str | None = None


class Paging(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How to request the next page: by number, until a page is not full; or by a token in the previous page."""

    param: str
    first: int = 1
    size: int = 100
    next: str | None = None  # path in the answer to the token of the next page


class PriceSource(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One source as declared."""

    name: str
    title: str
    url: str
    rows: str
    fields: FieldPaths
    seller: str | None = None  # None: `name`
    method: Literal["GET", "POST"] = "GET"
    params: dict[str, str] = {}
    body: str | None = None  # JSON to post
    places: tuple[str, ...] = ()  # values of {place} in `url`, requested one after the other
    paging: Paging | None = None
    every_s: float = 21_600.0  # minimum interval between two requests
    least_rows: int = 1  # reject an answer with fewer rows about GPUs
    kind: Literal["live", "listed"] = "listed"
    only_if_named: bool = False
    currency: str = "USD"
    tax_included: bool | None = None
    price_for: Literal["machine", "gpu"] = "machine"
    price_scale: float = 1.0  # dollars (or the currency's units) an hour for a price of 1
    memory_for: Literal["gpu", "machine"] = "gpu"
    memory_unit: Literal["GiB", "GB", "MiB", "B"] = "GiB"
    ram_unit: Literal["GiB", "GB", "MiB", "B"] = "GiB"
    count: int | None = None  # of GPUs, if no field and no machine states it
    gpu_pattern: str | None = None  # a regular expression for a GPU's text, with the groups `gpu` and `count`
    mixed: bool = False  # rows without a GPU are other goods, not errors
    suspects: str | None = None  # a regular expression: report undeclared machines that match it
    spot_tiers: tuple[str, ...] = ()
    keep: dict[str, tuple[str, ...]] = {}  # path → allowed values
    drop: dict[str, tuple[str, ...]] = {}
    machines: tuple[DeclaredMachine, ...] = ()
    min_billing_s: float | None = None
    note: str | None = None

    @property
    def sells_spot(self) -> bool:
        """Whether any of its rows may be spot."""
        return bool(self.fields.spot_price or self.spot_tiers)


def built_in_sources() -> dict[str, PriceSource]:
    """Load the sources that ship with gpuwatch, by name. Raises ValueError: never, in a release."""
    return {path.stem: read_source(path) for path in sorted(_FOLDER.glob("*.toml"))}


def own_sources(option: object) -> dict[str, PriceSource]:
    """Load the owner's sources, by name.

    Raises:
        ValueError: a file cannot be read or is not a declaration; or two have the same name.
    """
    sources: dict[str, PriceSource] = {}
    for name in option if isinstance(option, tuple) else ():
        try:
            source = read_source(expand_home(str(name)))
        except OSError as error:
            raise ValueError(f"{name}: {error.strerror}") from None
        if source.name in sources:
            raise ValueError(f"{name}: another file already declares {source.name}")
        sources[source.name] = source
    return sources


def read_source(path: Path) -> PriceSource:
    """Parse one declaration. Raises ValueError with one line that begins with the file."""
    try:
        return _validate(msgspec.toml.decode(_read_limited(path), type=PriceSource))
    except OSError as error:
        raise ValueError(f"{path}: {(error.strerror or 'not readable').lower()}") from error
    except (ValueError, RecursionError) as error:  # all errors of msgspec and TOML are ValueErrors
        raise ValueError(f"{path}: {' '.join(str(error).split())[:200]}") from error


def _read_limited(path: Path) -> bytes:
    with path.open("rb") as file:
        body = file.read(_MAX_BYTES + 1)
    if len(body) > _MAX_BYTES:
        raise ValueError(f"more than {_MAX_BYTES} bytes")
    return body


def _validate(source: PriceSource) -> PriceSource:
    for problem in _problems(source):
        raise ValueError(problem)
    return source


def paths(value: Paths) -> tuple[str, ...]:
    """Return one path or several as a tuple."""
    return (value,) if isinstance(value, str) else value


def _problems(source: PriceSource) -> Iterator[str]:
    checks = {
        "name: at most 24 lowercase letters, digits and hyphens": _NAME.fullmatch(source.name),
        "url: https://…, its query in params": _URL.fullmatch(source.url),
        "places and {place} in url require each other": bool(source.places) == ("{place}" in source.url),
        "currency: three uppercase letters": re.fullmatch(r"[A-Z]{3}", source.currency),
        f"every_s: at least {_MIN_EVERY_S:g}": source.every_s >= _MIN_EVERY_S,
        "least_rows: at least 0": source.least_rows >= 0,
        "price_scale: above 0": source.price_scale > 0 and all(machine.price_scale > 0 for machine in source.machines),
        "count: 1 to 1000": all(count is None or 0 < count <= 1000 for count in _counts(source)),
        "kind live requires fields.free: the proof of stock": source.kind != "live" or source.fields.free,
        "fields.gpu or [[machines]] is required: it names the GPU": source.fields.gpu or source.machines,
        "spot_tiers and fields.tier require each other": bool(source.spot_tiers) == bool(source.fields.tier),
        "body: requires method POST": source.body is None or source.method == "POST",
        "paging: size at least 1": source.paging is None or source.paging.size >= 1,
    }
    yield from (problem for problem, is_met in checks.items() if not is_met)
    yield from _error_text(partial(check_rows_path, source.rows))
    for path in _field_paths(source):
        yield from _error_text(partial(check_field_path, path))
    for pattern in _patterns(source):
        yield from _error_text(partial(_check_pattern, pattern))
    if source.body is not None:
        yield from _error_text(partial(msgspec.json.decode, source.body))


def _error_text(check: Callable[[], object]) -> Iterator[str]:
    try:
        check()
    except ValueError as error:
        yield str(error)


def _check_pattern(pattern: str) -> None:
    try:
        re.compile(pattern)
    except (re.error, RecursionError) as error:
        raise ValueError(f"invalid regular expression {pattern!r}: {error}") from error


def _counts(source: PriceSource) -> Sequence[int | None]:
    return [source.count, *(machine.count for machine in source.machines)]


def _field_paths(source: PriceSource) -> Iterator[str]:
    for name in FieldPaths.__struct_fields__:
        yield from paths(getattr(source.fields, name))
    yield from source.keep
    yield from source.drop
    if source.paging is not None and source.paging.next is not None:
        yield source.paging.next


def _patterns(source: PriceSource) -> Iterator[str]:
    yield from (machine.match for machine in source.machines)
    yield from (pattern for pattern in (source.gpu_pattern, source.suspects) if pattern is not None)
