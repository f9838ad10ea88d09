"""The fields of a watch's form: how a value of the settings file is shown to a person, and written back.

A field that nobody touched writes nothing, so that the file keeps its own spelling.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal, InvalidOperation
from typing import Any

import msgspec

from gpuwatch.domain.setup.durations import parse_duration
from gpuwatch.language import mark_text

Texts = Mapping[str, str]  # key of the file → its text, or name of an input → what it holds
_SIZES = {"d": 86_400, "h": 3_600, "m": 60}
JOB, AUTO, GPU_HOUR = "job", "auto", "gpu"  # units of the limit


class EditField(msgspec.Struct, frozen=True, kw_only=True):
    """One field. `kind` names the macro that shows it; texts are translated where they are shown.

    Attributes:
        default: what a choice holds if it is not set.
    """

    key: str
    kind: str
    label: str
    help: str = ""
    after: str = ""
    placeholder: str = ""
    default: str = ""
    options: tuple[tuple[str, str], ...] = ()

    @property
    def name(self) -> str:
        """The name of its input."""
        return f"f.{self.key}"

    def shown(self, texts: Texts) -> dict[str, str]:
        """What its inputs hold, by name."""
        return _SHOWN.get(self.kind, _shown_text)(self, texts)

    def written(self, typed: Texts) -> dict[str, str]:
        """The settings that its inputs mean, by key; empty: not set. Raises ValueError: it means nothing."""
        return _WRITTEN.get(self.kind, _written_text)(self, typed)


class Fold(msgspec.Struct, frozen=True):
    """Fields behind a summary."""

    name: str
    title: str
    fields: tuple[EditField, ...]


# --- to a person, and back --------------------------------------------------------------------------------------------


def _parsed(text: str) -> Any:
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def _shown_text(field: EditField, texts: Texts) -> dict[str, str]:
    return {field.name: texts.get(field.key, "") or field.default}


def _written_text(field: EditField, typed: Texts) -> dict[str, str]:
    return {field.key: typed[field.name].replace("\r\n", "\n").strip()}


def _shown_chips(field: EditField, texts: Texts) -> dict[str, str]:
    value = _parsed(texts.get(field.key, ""))
    values = value if isinstance(value, list) else [value]
    return {field.name: ", ".join(str(one) for one in values if one != "")}


def _written_chips(field: EditField, typed: Texts) -> dict[str, str]:
    values = [one.strip() for one in typed[field.name].split(",") if one.strip()]
    return {field.key: json.dumps(values, ensure_ascii=False) if values else ""}


def _shown_range(field: EditField, texts: Texts) -> dict[str, str]:
    value = _parsed(texts.get(field.key, ""))
    if isinstance(value, dict):
        low, high = str(value.get("min", "")), str(value.get("max", ""))
    else:
        low = high = str(value)
    return {f"{field.name}_from": low, f"{field.name}_to": high}


def _written_range(field: EditField, typed: Texts) -> dict[str, str]:
    low, high = typed[f"{field.name}_from"].strip(), typed[f"{field.name}_to"].strip()
    if not all(one.isascii() and one.isdigit() for one in (low, high) if one):
        raise ValueError(mark_text("Write whole numbers, such as 1 and 2."))
    low, high = low or high, high or low
    return {field.key: low if low == high else f"{{ min = {low}, max = {high} }}"}


def _shown_duration(field: EditField, texts: Texts) -> dict[str, str]:
    text = texts.get(field.key, "")
    try:
        seconds = parse_duration(str(_parsed(text)))
    except ValueError:
        return {field.name: text, f"{field.name}_unit": "h"}
    unit = next((unit for unit, size in _SIZES.items() if seconds and seconds % size == 0), "m")
    return {field.name: f"{seconds / _SIZES[unit]:g}", f"{field.name}_unit": unit}


def _written_duration(field: EditField, typed: Texts) -> dict[str, str]:
    text, unit = typed[field.name].strip(), typed.get(f"{field.name}_unit", "h")
    if not text:
        return {field.key: ""}
    if not re.fullmatch(r"\d{1,9}(\.\d{1,3})?", text, re.ASCII) or unit not in _SIZES:
        raise ValueError(mark_text("Write a number, such as 12."))
    return {field.key: f"{text}{unit}"}


def _shown_percent(field: EditField, texts: Texts) -> dict[str, str]:
    text = texts.get(field.key, "")
    share = _decimal(text)
    return {field.name: text if share is None else f"{(share * 100).normalize():f}"}


def _written_percent(field: EditField, typed: Texts) -> dict[str, str]:
    text = typed[field.name].strip()
    if not text:
        return {field.key: ""}
    share = _decimal(text)
    if share is None:
        raise ValueError(mark_text("Write a number, such as 90."))
    return {field.key: f"{(share / 100).normalize():f}"}


def _decimal(text: str) -> Decimal | None:
    try:
        value = Decimal(text)
    except InvalidOperation:
        return None
    return value if value.is_finite() and abs(value) < 10**9 else None


def _shown_toggle(field: EditField, texts: Texts) -> dict[str, str]:
    return {field.name: "yes" if texts.get(field.key) == "true" else ""}


def _written_toggle(field: EditField, typed: Texts) -> dict[str, str]:
    return {field.key: "true" if typed[field.name] == "yes" else ""}


def _shown_limit(field: EditField, texts: Texts) -> dict[str, str]:
    if texts.get("max_job_cost"):
        amount, unit = texts["max_job_cost"], JOB
    elif texts.get("max_price") == "auto":
        amount, unit = texts.get("max_price_cap", ""), AUTO
    else:
        amount, unit = texts.get("max_price", ""), GPU_HOUR
    return {field.name: amount, f"{field.name}_unit": unit}


def _written_limit(field: EditField, typed: Texts) -> dict[str, str]:
    amount, unit = typed[field.name].strip().removeprefix("$"), typed.get(f"{field.name}_unit", GPU_HOUR)
    none = {"max_price": "", "max_price_cap": "", "max_job_cost": ""}
    if unit == AUTO:
        return none | {"max_price": "auto", "max_price_cap": amount}
    return none | {"max_job_cost" if unit == JOB else "max_price": amount}


_SHOWN: Mapping[str, Callable[[EditField, Texts], dict[str, str]]] = {
    "chips": _shown_chips,
    "range": _shown_range,
    "duration": _shown_duration,
    "percent": _shown_percent,
    "toggle": _shown_toggle,
    "limit": _shown_limit,
}
_WRITTEN: Mapping[str, Callable[[EditField, Texts], dict[str, str]]] = {
    "chips": _written_chips,
    "range": _written_range,
    "duration": _written_duration,
    "percent": _written_percent,
    "toggle": _written_toggle,
    "limit": _written_limit,
}

# --- the fields -------------------------------------------------------------------------------------------------------

NAME = EditField(
    key="name", kind="text", label=mark_text("Name"), help=mark_text("Shown in alerts and in the history.")
)
LIMIT = EditField(
    key="max_price",
    kind="limit",
    label=mark_text("Limit"),
    help=mark_text("Commission included."),
    options=(
        (GPU_HOUR, mark_text("per GPU-hour")),
        (AUTO, mark_text("at most, automatic")),
        (JOB, mark_text("for the whole job")),
    ),
)
FIRST: Sequence[EditField] = (
    EditField(
        key="gpu",
        kind="chips",
        label=mark_text("GPUs"),
        help=mark_text("H100 means SXM, PCIe and NVL. Type a model to narrow it down."),
        placeholder=mark_text("Add a GPU"),
    ),
    EditField(key="gpu_count", kind="range", label=mark_text("GPUs per offer")),
    LIMIT,
    EditField(
        key="launch.max_runtime",
        kind="duration",
        label=mark_text("Longest runtime"),
        help=mark_text("Then the machine is ended."),
    ),
    EditField(key="action", kind="action", default="alert", label=mark_text("When an offer is at or under the limit")),
)
FOLDS: Sequence[Fold] = (
    Fold(
        "offers",
        mark_text("Which offers"),
        (
            EditField(
                key="spot",
                kind="select",
                default="no",
                label=mark_text("Rental"),
                options=(
                    ("no", mark_text("On demand")),
                    ("only", mark_text("Spot, can be interrupted")),
                    ("any", mark_text("Both")),
                    ("first", mark_text("Spot first, then both")),
                ),
            ),
            EditField(key="spot_for", kind="duration", label=mark_text("With spot first: wait for a spot offer for")),
            EditField(key="min_reliability", kind="percent", label=mark_text("Reliability at least"), after="%"),
            EditField(key="disk_gb", kind="number", label=mark_text("Disk"), after="GB"),
            EditField(key="regions", kind="chips", label=mark_text("Regions"), placeholder=mark_text("Anywhere")),
            EditField(
                key="min_vram_gib",
                kind="number",
                label=mark_text("Memory per GPU at least"),
                after="GiB",
                placeholder=mark_text("Any"),
            ),
            EditField(
                key="providers", kind="chips", label=mark_text("Providers"), placeholder=mark_text("All enabled ones")
            ),
            EditField(key="verified", kind="toggle", label=mark_text("Verified hosts only")),
        ),
    ),
    Fold(
        "when",
        mark_text("When it may act"),
        (
            EditField(
                key="active",
                kind="chips",
                label=mark_text("Hours"),
                help=mark_text("Such as 22:00-08:00, or Sat-Sun 00:00-24:00."),
                placeholder=mark_text("Always"),
            ),
            EditField(
                key="repeat_every",
                kind="text",
                label=mark_text("Reminder every"),
                help=mark_text("Such as 6h, or never."),
            ),
            EditField(key="hold_for", kind="duration", label=mark_text("Only after it was under the limit for")),
            EditField(key="improve_by", kind="percent", label=mark_text("Again when cheaper by"), after="%"),
        ),
    ),
    Fold(
        "machine",
        mark_text("The machine"),
        (
            EditField(key="launch.image", kind="text", label=mark_text("Image")),
            EditField(
                key="launch.onstart",
                kind="area",
                label=mark_text("Start script"),
                help=mark_text("Shell commands to run when the machine starts."),
            ),
        ),
    ),
    Fold(
        "limits",
        mark_text("Limits and safety"),
        (
            EditField(key="launch.max_active", kind="number", label=mark_text("Machines at a time")),
            EditField(
                key="launch.max_total",
                kind="number",
                label=mark_text("Machines in total"),
                help=mark_text("0: any number."),
            ),
            EditField(key="max_per_day", kind="number", label=mark_text("Machines a day")),
            EditField(
                key="launch.idle_below", kind="number", label=mark_text("Ends when its GPU use is under"), after="%"
            ),
            EditField(key="launch.idle_for", kind="duration", label=mark_text("for")),
            EditField(key="budget.max_usd_hour", kind="dollars", label=mark_text("Its hourly budget"), after="/h"),
            EditField(key="budget.max_usd_day", kind="dollars", label=mark_text("Its daily budget")),
            EditField(key="budget.max_usd_month", kind="dollars", label=mark_text("Its monthly budget")),
        ),
    ),
)
ALL_FIELDS: Sequence[EditField] = (NAME, *FIRST, *(field for fold in FOLDS for field in fold.fields))
FIELD_OF: Mapping[str, EditField] = {
    **{field.key: field for field in ALL_FIELDS},
    "max_price_cap": LIMIT,
    "max_job_cost": LIMIT,
}
