"""The published speeds, and the owner's own measurements beside them, in a file of the state folder."""

from __future__ import annotations

import os
import tomllib
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, Final

from gpuwatch.domain.market.gpu_cards import gpu_specs
from gpuwatch.domain.plan.figures import parse_range
from gpuwatch.domain.plan.own_rows import OWN
from gpuwatch.domain.plan.roofline import BYTES_PER_WEIGHT, Precision, SpeedTask, WorkMethod
from gpuwatch.domain.plan.throughput import MeasuredSpeed, ThroughputTable
from gpuwatch.errors import SettingsError, UsageError
from gpuwatch.measuring.own_speeds import FILE
from gpuwatch.settings.external_values import state_folder

_MAX_BYTES: Final = 4 << 20
_QLORA_BYTES: Final = 0.516  # 4.127 bits, with the constants


def throughput_table() -> ThroughputTable:
    """All published speeds, and the owner's own. Raises UsageError: the owner's file cannot be read."""
    try:
        path = state_folder(os.environ) / FILE
        return _table(path, path.stat().st_mtime_ns)
    except (OSError, SettingsError):  # there is no such file, or no folder for it
        return published_speeds()


@cache
def published_speeds() -> ThroughputTable:
    """The published speeds alone; read once."""
    text = (files("gpuwatch.domain.plan") / "throughput.toml").read_text(encoding="utf-8")
    return parse_throughput(tomllib.loads(text))


def parse_throughput(fields: dict[str, Any]) -> ThroughputTable:
    """The table of a parsed file. Raises KeyError, ValueError: a row is incomplete or impossible."""
    models = fields.get("models", {})
    return ThroughputTable(
        tuple(
            _row(models, publication | row)
            for publication in fields.get("publication", ())
            for row in publication["rows"]
        )
    )


@cache
def _table(own: Path, _changed: int) -> ThroughputTable:
    return ThroughputTable((*_own_rows(own), *published_speeds().rows))


def _own_rows(path: Path) -> tuple[MeasuredSpeed, ...]:
    try:
        with path.open("rb") as opened:
            content = opened.read(_MAX_BYTES + 1)
        if len(content) > _MAX_BYTES:
            raise UsageError(f"{path}: expected a file of at most {_MAX_BYTES >> 20} MB")
        rows = parse_throughput(tomllib.loads(content.decode("utf-8"))).rows
    except OSError as fault:
        raise UsageError(f"{path}: {fault.strerror}") from fault
    except (ValueError, TypeError, AttributeError, KeyError) as fault:
        raise UsageError(f"{path}: not a file of measured speeds ({fault}); remove the row, or the file") from fault
    if unknown := next((row.gpu for row in rows if row.gpu not in gpu_specs()), None):
        raise UsageError(f"{path}: the catalogue has no GPU {unknown!r}; gpuwatch plan card lists names")
    return rows


def _row(models: dict[str, Any], row: dict[str, Any]) -> MeasuredSpeed:
    model, method = row.get("shape") or models[row["model"]], WorkMethod(row["method"])
    precision = Precision(row["precision"])
    task = SpeedTask(
        method=method,
        params=model["params"],
        active_params=model.get("active", model["params"]),
        layers=model["layers"],
        hidden=model["hidden"],
        kv_width=model["kv_width"],
        weight_bytes=_QLORA_BYTES if method is WorkMethod.QLORA else BYTES_PER_WEIGHT[precision],
        fp8=precision is Precision.FP8,
        fp32=precision is Precision.FP32,
        batch=row["batch"],
        context=row["context"],
        offload=row.get("offload", False),
    )
    return MeasuredSpeed(
        model=row["model"],
        task=task,
        gpu=row["gpu"],
        count=row["count"],
        nvlink=row.get("link") == "NVLink",
        tokens_per_s=parse_range(row["tokens_per_s"]),
        publication=row["name"],
        url=row["url"],
        date=row["date"],
        is_own=row["url"] == OWN,
        peak_gb=row.get("peak_gb"),
        memory_keys=tuple(sorted(row.get("memory", {}).items())),
    )
