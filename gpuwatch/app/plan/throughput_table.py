"""The table of published speeds, read from the package."""

from __future__ import annotations

import tomllib
from functools import cache
from importlib.resources import files
from typing import Any

from gpuwatch.domain.plan.figures import parse_range
from gpuwatch.domain.plan.memory_need import BYTES_PER_WEIGHT, Precision
from gpuwatch.domain.plan.roofline import SpeedTask, WorkMethod
from gpuwatch.domain.plan.throughput import MeasuredSpeed, ThroughputTable

_QLORA_BYTES = 0.516  # 4.127 bits, with the constants


@cache
def throughput_table() -> ThroughputTable:
    """All published speeds; read once."""
    text = (files("gpuwatch.domain.plan") / "throughput.toml").read_text(encoding="utf-8")
    return parse_throughput(tomllib.loads(text))


def parse_throughput(fields: dict[str, Any]) -> ThroughputTable:
    """The table of a parsed file. Raises KeyError, ValueError: a row is incomplete or impossible."""
    models = fields["models"]
    return ThroughputTable(
        tuple(_row(models, publication | row) for publication in fields["publication"] for row in publication["rows"])
    )


def _row(models: dict[str, Any], row: dict[str, Any]) -> MeasuredSpeed:
    model, method, precision = models[row["model"]], WorkMethod(row["method"]), Precision(row["precision"])
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
    )
