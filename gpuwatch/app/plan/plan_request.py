"""The keys of a plan from a file, `--set key=value` and options, as one request."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from pydantic import ValidationError

from gpuwatch.domain.jobs.job_definition import JobDefinition
from gpuwatch.domain.jobs.job_request import JobRequest
from gpuwatch.domain.market.offer import clean
from gpuwatch.domain.plan.architectures.language_models import LanguageModel, model_from_config
from gpuwatch.domain.plan.figures import parse_figure
from gpuwatch.domain.plan.roofline import TrainingMethod
from gpuwatch.domain.plan.workload import ModelKeys
from gpuwatch.domain.setup.durations import EnvText
from gpuwatch.domain.setup.fields import Table, table_of
from gpuwatch.errors import UsageError
from gpuwatch.settings.settings_errors import validation_errors

MAX_BYTES = 1_000_000  # of a file with figures, or a config.json
EXAMPLES = files("gpuwatch.domain.plan") / "examples"

# Option → key, of the commands that plan (`plan job` also has `--by` and `--watch`); `--set` sets every other key.
JOB_OPTIONS = {
    "--size-of": "model", "--method": "method", "--tokens": "tokens", "--hours": "hours", "--gpu": "gpu",
    "--under": "max_cost", "--spot": "spot", "--poll": "poll",
}  # fmt: skip

NEW_JOB_OPTIONS = JOB_OPTIONS | {
    f"--{key.replace('_', '-')}": key
    for key in ("on", "count", "provider", "verified", "interruptions_per_day", "data", "timeout")
}
SIZE_OPTIONS = {
    "--params": "model", "--method": "method", "--precision": "precision", "--optimizer": "optimizer",
    "--batch": "batch", "--context": "context", "--gpu": "gpu",
}  # fmt: skip
FIT_OPTIONS = {"--size-of": "model"} | {
    f"--{key.replace('_', '-')}": key
    for key in (
        *("task", "vram", "latency", "method", "gpu", "price", "poll", "data", "provider", "spot", "listed", "by"),
        *("against", "any_price", "limit"),
    )
}
BUY_OPTIONS = {
    f"--{key.replace('_', '-')}": key
    for key in ("card", "cards", "card_price", "memory", "rent", "rent_gpu", "days", "launches", "since", "log_gpu")
}

FOR_OPTIONS = {
    f"--{key.replace('_', '-')}": key
    for key in (
        *("gpu", "rent", "hours_a_day", "years", "card_price", "spot_usd", "term_years", "rent_change", "credit"),
        *("credit_provider", "poll"),
    )
}

# What a job file states in other words: its key → that of the planner.
_JOB_FILE_KEYS = {
    ("hours",): "hours", ("limit", "max_usd"): "max_cost",
    ("resources", "gpu"): "gpu", ("resources", "gpu_count"): "count", ("resources", "providers"): "provider",
    ("resources", "when"): "when",
    ("resources", "spot"): "spot", ("resources", "verified"): "verified", ("resources", "disk_gb"): "disk_gb",
    ("resources", "download_gb"): "download_gb", ("resources", "upload_gb"): "upload_gb",
}  # fmt: skip

Request = TypeVar("Request", bound=Table)


def request_of(kind: type[Request], values: Mapping[str, Any], options: Mapping[str, str] | None = None) -> Request:
    """The request with these keys. Raises UsageError: one line per fault, with its option or key.

    Args:
        options: option → key, to name a fault by what was typed.
    """
    labels = {key: option for option, key in (options or {}).items()}
    try:
        return kind.model_validate(with_model(values, labels) if issubclass(kind, ModelKeys) else values)
    except ValidationError as error:
        faults = [(str(loc[0]) if loc else "", text) for loc, text in validation_errors(error, kind)]
        lines = [f"{labels.get(key, key)}: {text}" if key else text for key, text in faults]
        raise UsageError("\n".join(dict.fromkeys(lines))) from None


def label_of(key: str, options: Mapping[str, str]) -> str:
    """The option of a key, or the key itself."""
    return next((option for option, name in options.items() if name == key), key)


def refuse_keys(request: Table, reason: str, keys: Sequence[str], options: Mapping[str, str] = JOB_OPTIONS) -> None:
    """Reject keys that would have no effect. Raises UsageError: names the first one that is stated, and why."""
    for key in keys:
        if key in request.model_fields_set:
            raise UsageError(f"{label_of(key, options)} {reason}")


_TRAINING = ("optimizer", "recompute", "master", "offload", "micro_batch", "fused_attention")
_ADAPTERS = ("rank", "targets")


def refuse_ignored_workload(request: ModelKeys, options: Mapping[str, str]) -> None:
    """Reject keys of a workload that would have no effect. Raises UsageError."""
    if request.model is None:
        names = ("method", "precision", "batch", "context", *_TRAINING, *_ADAPTERS, "input_gb")
        refuse_keys(request, f"requires a model: add {label_of('model', options)} or shape", names, options)
    method = request.work_method
    if method is TrainingMethod.INFERENCE:
        refuse_keys(request, "applies to training only", _TRAINING, options)
    if method not in {TrainingMethod.LORA, TrainingMethod.QLORA}:
        refuse_keys(request, "requires --method lora or qlora", _ADAPTERS, options)
    else:
        refuse_keys(request, "requires --method full: adapters have no such copy", ("master",), options)


# --- files ------------------------------------------------------------------------------------------------------------


def read_toml(path: Path, **more: Any) -> dict[str, Any]:
    """A file of at most 1 MB; a path that does not exist may name an example of gpuwatch's own.

    Raises:
        UsageError: it cannot be read.
    """
    try:
        if not path.exists() and (EXAMPLES / path.name).is_file():
            content = (EXAMPLES / path.name).read_bytes()
        else:
            with path.open("rb") as opened:
                content = opened.read(MAX_BYTES + 1)
        if len(content) > MAX_BYTES:
            raise UsageError(f"{path}: expected a file of at most 1 MB")
        return tomllib.loads(content.decode("utf-8"), **more)
    except OSError as fault:
        raise UsageError(f"{path}: {fault.strerror}") from fault
    except (ValueError, ArithmeticError, RecursionError) as fault:  # TOML and UTF-8 errors are ValueErrors
        raise UsageError(f"{path}: {clean(' '.join(str(fault).split()), 300)}") from fault


def file_values(path: Path, kind: type[Table]) -> dict[str, Any]:
    """The keys that a job file states for a plan: its `[plan]`, and what it says elsewhere in its own words.

    Raises:
        UsageError: it cannot be read, or has a table that neither the planner nor the queue knows.
    """
    tree = read_toml(path)
    if unknown := sorted(tree.keys() - table_of(JobDefinition).model_fields.keys()):
        raise UsageError(f"{path}: {clean(unknown[0])}: unknown key; figures of the planner belong in [plan]")
    found = {}
    for place, key in _JOB_FILE_KEYS.items():
        value: Any = tree
        for part in place:
            value = value.get(part) if isinstance(value, dict) else None
        if value is not None and key in kind.model_fields:
            found[key] = value
    figures = tree.get("plan", {})
    if not isinstance(figures, dict):
        raise UsageError(f"{path}: plan: expected a table")
    stated = found | figures
    try:
        kind.model_validate(with_model(stated, {}) if issubclass(kind, ModelKeys) else stated)
    except ValidationError as error:  # what keys require of each other is known only with those of `--set`
        faults = [
            f"{path}: {loc[0]}: {text}" for loc, text in validation_errors(error, kind) if set(loc[:1]) & {*stated}
        ]
        if faults:
            raise UsageError("\n".join(dict.fromkeys(faults))) from None
    return stated


def set_values(texts: Sequence[str]) -> dict[str, Any]:
    """The keys of `--set key=value`; a key that is repeated gets a list. Raises UsageError."""
    found: dict[str, Any] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        key = key.strip().replace("-", "_")
        if not equals or not key:
            raise UsageError(f"--set {text!r}: expected key=value, such as epochs=3")
        one: Any = EnvText(value.strip())
        if value.strip()[:1] in {"[", "{"}:
            try:
                one = tomllib.loads(f"value = {value}")["value"]
            except ValueError as fault:
                raise UsageError(f"--set {text!r}: {fault}") from None
        before = found.get(key)
        found[key] = one if before is None else [*(before if isinstance(before, list) else [before]), one]
    return found


# --- the model --------------------------------------------------------------------------------------------------------


def with_model(values: Mapping[str, Any], labels: Mapping[str, str]) -> dict[str, Any]:
    """The keys with the model of a config.json, if they name one. Raises UsageError."""
    model, shape = values.get("model"), values.get("shape")
    if shape is not None:
        return {**values, "model": _read_model(Path(str(shape)), None if model is None else str(model))}
    if isinstance(model, str) and model.endswith(".json"):
        return {**values, "model": _read_model(Path(model), None)}
    return dict(values)


def _read_model(path: Path, params: str | None) -> LanguageModel:
    try:
        text = path.read_bytes()
        fields = json.loads(text) if len(text) <= MAX_BYTES else None
        if not isinstance(fields, dict):
            raise UsageError(f"{path}: not a model's config.json")
        model = model_from_config(fields, path.absolute().parent.name if path.name == "config.json" else path.stem)
        return model if params is None else msgspec.structs.replace(model, params=parse_figure(params))
    except OSError as fault:
        raise UsageError(f"{path}: {fault.strerror}") from fault
    except (ValueError, RecursionError) as fault:
        raise UsageError(f"{path}: {fault}") from fault


def job_request(values: Mapping[str, Any], options: Mapping[str, str] = JOB_OPTIONS) -> JobRequest:
    """The request of `gpuwatch plan job` with these keys. Raises UsageError."""
    return request_of(JobRequest, values, options)
