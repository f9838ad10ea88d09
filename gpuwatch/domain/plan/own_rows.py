"""Measurements of one's own machines as rows of `throughput.toml`: a synthetic run, and a job's pilot. Pure.

A row is a `[[publication]]` that is complete in itself, so that rows can be appended to a file: it has the shape of its
model, and the versions that it was measured with.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from typing import Any, Final

import msgspec

from gpuwatch.domain.plan.architectures.language_models import LanguageModel
from gpuwatch.domain.plan.architectures.transformer_shape import LinearRole, TransformerShape
from gpuwatch.domain.plan.figures import FigureRange
from gpuwatch.domain.plan.roofline import Precision, TrainingMethod, WorkMethod

OWN: Final = "own measurement"  # the address of such rows
_TOLERANCE: Final = 0.02  # of the parameters: norms and biases are left out


class SyntheticRun(msgspec.Struct, frozen=True, kw_only=True):
    """A short run of a model with random weights.

    Attributes:
        batch: sequences in memory at once.
        context: tokens of a sequence; decoding is timed in its middle.
        steps: that are timed, after a warm-up.
    """

    shape: TransformerShape
    method: TrainingMethod
    precision: Precision
    batch: int
    context: int
    steps: int
    recompute: bool = True
    rank: int = 16
    targets: str = "all"

    def adapts(self, name: str) -> bool:
        """Does a matrix get an adapter?"""
        return self.targets == "all" or name in {LinearRole.QUERY.value, LinearRole.VALUE.value}


class OwnRow(msgspec.Struct, frozen=True, kw_only=True):
    """One measurement. None: not measured.

    Attributes:
        key: of a row that must be in a file only once.
        signed: the versions of everything that took part.
        peak_gb: the most that PyTorch allocated, in GB of 10⁹ bytes.
        latency_ms: the time of a step, or of a token: the median, and what 95 of 100 stay under.
    """

    key: str
    name: str
    at: datetime
    signed: str
    model: str
    shape: Mapping[str, float]
    method: WorkMethod
    precision: Precision
    gpu: str
    count: int
    nvlink: bool = False
    batch: int
    context: int
    tokens_per_s: FigureRange
    peak_gb: float | None = None
    latency_ms: tuple[float, float] | None = None
    memory_keys: Mapping[str, Any] = {}
    disk_mb_s: tuple[float, float] | None = None  # written, read
    network_mbps: float | None = None

    @property
    def toml(self) -> str:
        """The row as a piece of `throughput.toml`."""
        row = {
            "model": self.model, "gpu": self.gpu, "count": self.count, "batch": self.batch, "context": self.context,
            "tokens_per_s": _span(self.tokens_per_s),
        } | ({"link": "NVLink"} if self.nvlink else {})  # fmt: skip
        measured = {
            "peak_gb": _rounded(self.peak_gb), "latency_ms": _pair("p50", "p95", self.latency_ms),
            "disk_mb_s": _pair("write", "read", self.disk_mb_s), "network_mbps": _rounded(self.network_mbps),
        }  # fmt: skip
        whole = {
            "name": self.name, "url": OWN, "date": self.at.date().isoformat(), "key": self.key,
            "framework": self.signed,
            "method": self.method.value, "precision": self.precision.value, "shape": dict(self.shape),
        } | ({"memory": dict(self.memory_keys)} if self.memory_keys else {})  # fmt: skip
        lines = [f"{key} = {_toml(value)}" for key, value in whole.items()]
        row |= {key: value for key, value in measured.items() if value is not None}
        return "\n".join(["[[publication]]", *lines, f"rows = [{_toml(row)}]", ""])


def shape_keys(model: LanguageModel) -> dict[str, float]:
    """What a row keeps of a model's shape."""
    shape, active = model.shape, model.active_params
    found = {"params": model.params, "layers": shape.layers, "hidden": shape.hidden, "kv_width": shape.kv_width}
    return found if active == model.params else found | {"active": active}


def refuse_other_shapes(model: LanguageModel) -> None:
    """Only models whose layers are all alike are built: attention, then one feed-forward part. Raises ValueError."""
    shape = model.shape
    queries, keys = shape.heads * shape.head_width, shape.kv_heads * shape.head_width
    layer = 2 * shape.hidden * (queries + keys) + shape.matrices * shape.hidden * shape.ffn
    built = shape.layers * layer + shape.vocab * shape.hidden * (1 if shape.tied else 2)
    if shape.experts > 1 or shape.kv_rank or shape.state or abs(built / model.params - 1) > _TOLERANCE:
        raise ValueError(
            f"{model.name}: only decoders with equal layers of attention and one feed-forward part can be measured, "
            "such as Llama, Mistral, Qwen and GPT"
        )


def speed_of_steps(tokens: int, step_s: Sequence[float]) -> FigureRange:
    """Tokens a second: from the slowest to the fastest quarter of the steps, whose order does not matter."""
    ordered = sorted(step_s)
    quarter = max(1, len(ordered) // 4)
    slow, fast = ordered[-quarter:], ordered[:quarter]
    return FigureRange(tokens * len(slow) / sum(slow), tokens * len(fast) / sum(fast))


def percentile_ms(step_s: Sequence[float], share: float) -> float:
    """The time that this share of the steps stays within, in milliseconds: the nearest rank."""
    ordered = sorted(step_s)
    return 1000 * ordered[min(len(ordered) - 1, max(0, -(-len(ordered) * round(share * 100) // 100) - 1))]


def _pair(first: str, second: str, values: tuple[float, float] | None) -> dict[str, float] | None:
    return None if values is None else {first: _short(values[0]), second: _short(values[1])}


def _rounded(value: float | None) -> float | None:
    return None if value is None else _short(value)


def _short(value: float) -> float:
    return float(f"{value:.4g}")


def _span(span: FigureRange) -> str:
    low, high = (f"{Decimal(f'{one:.4g}'):f}" for one in span)  # never 1e+06: a range is read without exponents
    return low if low == high else f"{low}-{high}"


def _toml(value: Any) -> str:
    """Texts, numbers and tables on one line. JSON's texts and numbers are TOML's."""
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{key} = {_toml(one)}" for key, one in value.items()) + " }"
    return json.dumps(value)
