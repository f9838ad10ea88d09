"""How the keys of a watch are read: names of GPUs and places, windows, times, versions, conditions. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection
from contextvars import ContextVar
from datetime import UTC, datetime
from decimal import Decimal
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema

from gpuwatch.domain.market.gpu_names import catalog, clean_name, fold
from gpuwatch.domain.market.offer import NO_GPU
from gpuwatch.domain.market.places import unknown_country, unknown_place
from gpuwatch.domain.setup.durations import DURATION_PATTERN
from gpuwatch.domain.setup.fields import (
    MAX_USD,
    Line,
    Lines,
    Number,
    Spec,
    UnknownName,
    Usd,
    Whole,
    Words,
    about,
    exact_number,
    line,
    one_or_many,
    seconds,
)
from gpuwatch.domain.watches.expression import comparisons_of, parse
from gpuwatch.domain.watches.windows import WINDOW_PATTERN, parse_window

MOST_GPUS = 1024  # in one offer; no machine has more

# Provider spellings that are not in the catalogue; a context variable, because a watch names its GPUs after validation.
SEEN: ContextVar[Collection[str]] = ContextVar("SEEN", default=())
SEEN_PLACES: ContextVar[Collection[str]] = ContextVar("SEEN_PLACES", default=())  # regions seen at providers

_LOOKS_LIKE_A_TIME = re.compile(r"[0-9]{4}-")
_MAX_PRICE_SCHEMA = {"anyOf": [{"type": "number", "exclusiveMinimum": 0}, {"const": "auto", "type": "string"}]}
_DEADLINE_SCHEMA = {
    "type": "string",
    "pattern": rf"^[0-9]{{4}}-|{DURATION_PATTERN}",
    "examples": ["2d", "2026-12-01T08:00:00Z"],
}
_VERSION = re.compile(r"[0-9]{1,9}(\.[0-9]{1,9}){0,5}")
_WINDOW_SCHEMA = {
    "type": "string",
    "pattern": WINDOW_PATTERN,
    "examples": ["22:00-08:00", "Mon-Fri 09:00-18:00", "Sat-Sun"],
}
Fraction = Annotated[Number, Field(ge=0, le=1), WithJsonSchema({"type": "number", "minimum": 0, "maximum": 1})]


def _window(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError('expected a window in quotes, such as "22:00-08:00"')  # noqa: TRY004
    parse_window(value)
    return value


def _repeat(value: Any) -> float | None:
    return None if value == "never" else seconds(value)


def _places(values: tuple[str, ...]) -> tuple[str, ...]:
    faults = [fault for text in values if (fault := unknown_place(text, SEEN_PLACES.get())) is not None]
    if faults:
        raise UnknownName("; ".join(faults))
    return values


def _version(value: Any) -> str:
    if not isinstance(value, str) or not _VERSION.fullmatch(value.strip()):
        raise ValueError('expected a version in quotes, such as "550.54"')
    return value.strip()


def _max_price(value: Any) -> Any:
    if value == "auto":
        return value
    found = exact_number(value)
    if found <= 0:
        raise ValueError("expected a number above 0")
    if found > MAX_USD:
        raise ValueError(f"expected a number of at most {MAX_USD}")
    return found


def _deadline(value: Any) -> float | datetime:
    """A duration, or a time: TOML has a type for times, the environment only text."""
    if isinstance(value, str) and not _LOOKS_LIKE_A_TIME.match(value):
        return seconds(value)
    try:
        found = datetime.fromisoformat(value) if isinstance(value, str) else value
    except ValueError:
        found = None
    if not isinstance(found, datetime) or found.tzinfo is None or not 2000 <= found.year < 2200:
        raise ValueError('expected a duration such as "2d", or a time with its zone such as 2026-12-01T08:00:00Z')
    return found.astimezone(UTC)


Window = Annotated[str, BeforeValidator(_window), WithJsonSchema(_WINDOW_SCHEMA)]
Windows = Annotated[tuple[Window, ...], BeforeValidator(one_or_many, json_schema_input_type=Window | list[Window])]
Deadline = Annotated[float | datetime, BeforeValidator(_deadline), WithJsonSchema(_DEADLINE_SCHEMA)]
Version = Annotated[str, BeforeValidator(_version)]
FormerName = Annotated[str, BeforeValidator(lambda value: value if value == "" else line(value)), Field(max_length=500)]
GroupName = Annotated[Line, Field(max_length=100)]
Repeat = Annotated[
    float | None,
    BeforeValidator(_repeat),
    WithJsonSchema({"type": "string", "pattern": f"^never$|{DURATION_PATTERN}", "examples": ["6h", "never"]}),
]
MaxPrice = Annotated[Decimal | Literal["auto"], BeforeValidator(_max_price), WithJsonSchema(_MAX_PRICE_SCHEMA)]
Places = Annotated[Words, AfterValidator(_places)]


class GpuCount(Spec, frozen=True, kw_only=True):
    """`{ min = 1, max = 8 }`."""

    min: Annotated[Whole, about("Minimum number of GPUs in one offer.", ge=1, le=MOST_GPUS)] = 1
    max: Annotated[Whole, about("Maximum number of GPUs in one offer.", ge=1, le=MOST_GPUS)] = MOST_GPUS

    @classmethod
    def computed(cls, table: Any) -> dict[str, Any]:
        """The smaller number comes first."""
        if table.min > table.max:
            raise ValueError("expected min to be at most max")
        return {}


def _gpu_count(value: Any) -> Any:
    if isinstance(value, int) and not isinstance(value, bool):
        if not 1 <= value <= MOST_GPUS:
            raise ValueError(f"expected a number from 1 to {MOST_GPUS}")
        return {"min": value, "max": value}
    if not isinstance(value, dict | GpuCount):
        raise ValueError("expected a whole number, or { min = 1, max = 8 }")  # noqa: TRY004
    return value


def _condition(text: str) -> str:
    for comparison in comparisons_of(parse(text)):
        values = [str(value) for value in comparison.values]
        if comparison.name == "gpu":
            named_gpus(values)
        elif comparison.name == "country" and (fault := next(filter(None, map(unknown_country, values)), None)):
            raise ValueError(fault)
        elif comparison.name == "cpu_arch" and not {value.lower() for value in values} <= {"x86_64", "arm64"}:
            raise ValueError("cpu_arch is 'x86_64' or 'arm64'")
    return text


ConditionText = Annotated[Line, AfterValidator(_condition)]
ConditionTexts = Annotated[
    tuple[ConditionText, ...], BeforeValidator(one_or_many, json_schema_input_type=str | list[str])
]


OfferCount = Annotated[GpuCount, BeforeValidator(_gpu_count, json_schema_input_type=int | GpuCount)]


class WatchKeys:
    """Keys of `[[watch]]` that `Watch` holds by other fields."""

    gpu_count: Annotated[OfferCount, about("GPUs of one offer: a number, or { min = 1, max = 8 }.")] = GpuCount(
        min=1, max=1
    )
    max_price: Annotated[
        MaxPrice | None,
        about('USD per GPU-hour, commission included; fires at or under it. "auto": computed from the history.'),
    ] = None
    max_price_cap: Annotated[Usd | None, about('Upper limit of max_price = "auto", in USD per GPU-hour.')] = None
    deadline: Annotated[
        Deadline | None,
        about('Time by which max_price = "auto" must rent: a duration from the first poll, or a time with zone.'),
    ] = None


def named_gpus(wanted: Collection[str]) -> tuple[str, ...]:
    """Return the canonical names that an owner's texts stand for; a spelling in `SEEN` stands for itself.

    Raises:
        UnknownName: a text names no card; the message suggests what may have been meant.
    """
    seen = {fold(spelling): clean_name(spelling) for spelling in SEEN.get()}
    names: dict[str, None] = {}
    for text in wanted:
        recorded = seen.get(fold(text))
        found = catalog().wanted(text) or (*catalog().unlisted(text), *([recorded] if recorded else []))
        if not found:
            raise UnknownName(_unknown_gpu(text))
        names.update(dict.fromkeys(found))
    return tuple(names)


def watched_gpus(wanted: Collection[str]) -> tuple[str, ...]:
    """Return the canonical names that a watch's texts stand for; "none" is a machine without GPUs. Raises UnknownName.

    Raises:
        ValueError: "none" stands beside a GPU.
    """
    none = [text for text in wanted if text.strip().casefold() == NO_GPU]
    if not none:
        return named_gpus(wanted)
    if len(none) < len(wanted):
        raise ValueError('"none" is a machine without GPUs and stands alone: use a watch of its own')
    return (NO_GPU,)


def check_gpus(wanted: tuple[str, ...]) -> tuple[str, ...]:
    """Return the texts themselves if each one stands for a GPU. Raises UnknownName."""
    named_gpus(wanted)
    return wanted


def _check_watched(wanted: tuple[str, ...]) -> tuple[str, ...]:
    watched_gpus(wanted)
    return wanted


def _unknown_gpu(text: str) -> str:
    near = catalog().suggest(text)
    hint = f"; did you mean {' or '.join(near)}?" if near else ""
    return f"unknown GPU {clean_name(text)!r}{hint}"


WatchedGpus = Annotated[
    Lines,
    AfterValidator(_check_watched),
    about(
        "GPU family or canonical name, one or several, in any spelling that a provider uses; "
        '"none": a machine without GPUs.'
    ),
]
