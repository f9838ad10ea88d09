"""The form of a plan: what was typed, as a request; what is wrong with it, by field."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING
from urllib.parse import urlencode

from gpuwatch.errors import UsageError
from gpuwatch.language import mark_text
from gpuwatch.language import translate as _

if TYPE_CHECKING:
    from gpuwatch.domain.jobs.job_request import JobRequest
    from gpuwatch.web.page import View

METHODS = (
    ("qlora", mark_text("QLoRA")),
    ("lora", mark_text("LoRA")),
    ("full", mark_text("Full fine-tune")),
    ("inference", mark_text("Inference")),
)
PRECISIONS = tuple((name, name) for name in ("bf16", "fp16", "fp8", "int8", "int4"))
SPOTS = (("no", mark_text("On demand")), ("only", mark_text("Spot")), ("any", mark_text("Both")))
TOKEN_UNITS = (("M", mark_text("million")), ("B", mark_text("billion")))
TIME_UNITS = (("h", mark_text("hours")), ("d", mark_text("days")))
_DEFAULTS = {
    "method": "qlora", "precision": "bf16", "batch": "1", "context": "4096", "spot": "no", "tokens_unit": "M",
    "within_unit": "h",
}  # fmt: skip
_FIELDS = (
    "model", "method", "tokens", "tokens_unit", "within", "within_unit", "max_cost", "gpu", "count", "spot",
    "interruptions_per_day", "precision", "batch", "context",
)  # fmt: skip
_FOLDED = frozenset({"gpu", "count", "spot", "interruptions_per_day", "precision", "batch", "context"})
_QLORA = {"method": "qlora", "tokens": "100", "within": "48", "max_cost": "40"}
_PRESETS: tuple[tuple[str, Mapping[str, str]], ...] = (
    (mark_text("QLoRA, 8B"), {"model": "llama-3.1-8b", **_QLORA}),
    (mark_text("QLoRA, 70B"), {"model": "llama-3.1-70b", **_QLORA, "max_cost": "300"}),
    (
        mark_text("Full fine-tune, 8B"),
        {"model": "llama-3.1-8b", "method": "full", "tokens": "100", "within": "48", "max_cost": "300"},
    ),
    (
        mark_text("Batch inference, 70B"),
        {"model": "llama-3.1-70b", "method": "inference", "tokens": "20", "within": "24", "max_cost": "100",
         "precision": "fp8", "batch": "32"},
    ),
)  # fmt: skip
_TYPED = re.compile(r"([0-9][0-9.,]*)\s*([kKmMbBhHdD]?)", re.ASCII)
_COUNT = re.compile(r"[1-9][0-9]{0,3}(-[1-9][0-9]{0,3})?", re.ASCII)
_WRONG = {
    "model": mark_text("Write a size or a model, such as 8B or llama-3.1-8b."),
    "method": mark_text("Choose a method."),
    "tokens": mark_text("Write a number above 0, such as 100."),
    "within": mark_text("Write a number above 0, such as 48."),
    "max_cost": mark_text("Write dollars above 0, such as 40."),
    "gpu": mark_text("Write names of GPUs, such as H100, A100."),
    "count": mark_text("Write a number or a range, such as 4 or 1-8."),
    "spot": mark_text("Choose one."),
    "interruptions_per_day": mark_text("Spot machines are interrupted. Write how often a day; 0 means never."),
    "precision": mark_text("Choose a precision."),
    "batch": mark_text("Write a whole number, such as 8."),
    "context": mark_text("Write a whole number, such as 4096."),
}
_MAX_CHARS = 200


class FieldErrors(UsageError):
    """What is wrong, by field."""

    def __init__(self, errors: Mapping[str, str]) -> None:
        super().__init__("\n".join(errors.values()))
        self.errors = errors


def typed_values(view: View) -> dict[str, str]:
    """What was typed, of the address or the form; units apart, also where they stand behind a number."""
    given = {**view.query, **view.form}
    typed = {name: given.get(name, "").strip()[:_MAX_CHARS] or _DEFAULTS.get(name, "") for name in _FIELDS}
    for name in ("tokens", "within"):
        match = _TYPED.fullmatch(typed[name])
        if match is not None and match[2]:
            number, unit = match[1], match[2].upper() if name == "tokens" else match[2].lower()
            if unit == "K":
                number, unit = f"{float(number.replace(',', '')) / 1000:g}", "M"
            typed[name], typed[f"{name}_unit"] = number, unit
    return typed


def address_of(typed: Mapping[str, str]) -> str:
    """The address that shows this plan."""
    return f"/plan?{urlencode({name: text for name, text in typed.items() if text})}"


def preset_links(typed: Mapping[str, str]) -> list[tuple[str, str, bool]]:
    """(name, address, whether it is shown) of each plan to start from."""
    return [
        (_(name), f"/plan?{urlencode(values)}", all(typed[key] == value for key, value in values.items()))
        for name, values in _PRESETS
    ]


def request_of_form(typed: Mapping[str, str]) -> JobRequest:
    """The request. Raises FieldErrors; UsageError: what is wrong concerns no field."""
    from gpuwatch.app.plan.plan_request import job_request  # noqa: PLC0415 pydantic, only when needed
    from gpuwatch.domain.setup.durations import EnvText  # noqa: PLC0415

    given = {name: text for name, text in typed.items() if text and not name.endswith("_unit")}
    for name in ("tokens", "within"):
        if name in given:
            given[name] = given[name].replace(",", "") + typed[f"{name}_unit"]
    given["max_cost"] = given.get("max_cost", "").replace(",", "").removeprefix("$")
    missing = {name: _(_WRONG[name]) for name in ("model", "tokens") if not typed[name]}
    if typed["model"].endswith(".json"):  # it would name a file of this machine
        missing["model"] = _(_WRONG["model"])
        del given["model"]
    if typed["spot"] != "no" and not typed["interruptions_per_day"]:
        missing["interruptions_per_day"] = _(_WRONG["interruptions_per_day"])
    if typed["count"] and _COUNT.fullmatch(typed["count"]) is None:
        missing["count"] = _(_WRONG["count"])
    if typed["spot"] == "no":
        given.pop("interruptions_per_day", None)
    values: dict[str, object] = {name: EnvText(text) for name, text in given.items() if text and name != "gpu"}
    if typed["gpu"]:
        values["gpu"] = [one.strip() for one in typed["gpu"].split(",") if one.strip()]
    try:
        request = job_request(values, {})
    except UsageError as error:
        keys = [line.partition(":")[0] for line in str(error).splitlines()]
        if found := missing | {key: _(_WRONG[key]) for key in keys if key in _WRONG}:
            raise FieldErrors(found) from None
        raise
    if missing:
        raise FieldErrors(missing)
    return request


def is_folded(errors: Mapping[str, str]) -> bool:
    """Whether one of the fields under "More" is wrong, so that it is open."""
    return not _FOLDED.isdisjoint(errors)


def more_summary(typed: Mapping[str, str]) -> str:
    """What the folded fields say, in words."""
    gpus = typed["gpu"] or _("any GPU")
    count = _("{count} per offer").format(count=typed["count"].replace("-", "–")) if typed["count"] else _("any number")
    spot = {"only": _("spot"), "any": _("on demand or spot")}.get(typed["spot"], _("on demand"))
    rest = _("batch {batch}, context {context}").format(batch=typed["batch"], context=typed["context"])
    return f"{gpus}, {count}, {spot}, {typed['precision']}, {rest}"
