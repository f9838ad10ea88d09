"""The steps of an audit as a chain: what goes into each, what comes out, how long it took, and what the whole costs.

Each step is scaled by its own rule: by rows, and the comparison of near duplicates by the pairs that it forms. The
processors elsewhere are assumed to be as fast as those here; a step that runs on one processor is no faster on more.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec
import numpy as np

from gpuwatch.dataset.audit import CLUSTERS, NEARLY_THE_SAME, Audit, RemovalReason
from gpuwatch.dataset.audit_report import lines_for, size_text
from gpuwatch.dataset.duplicates import MAX_KMEANS_ROWS, compared_pairs, measure_mini_batches
from gpuwatch.dataset.perplexity import PERPLEXITY
from gpuwatch.dataset.preparation.cpu_machine import CpuMachine
from gpuwatch.dataset.scan import EMBEDDINGS, EQUAL_TEXTS, NO_ROW, TOKENS, WORDING
from gpuwatch.domain.market.money import dollars, price_text
from gpuwatch.domain.setup.durations import HOUR_S

CROWDED: Final = "rows per cluster"
_MODEL_STEPS: Final = frozenset({EMBEDDINGS, PERPLEXITY})  # what a GPU would do faster
_SERIAL: Final = frozenset({CLUSTERS})  # KMeans runs on one thread, so that it always gives the same result
_REMOVES: Final = {
    EQUAL_TEXTS: (RemovalReason.EXACT,),
    WORDING: (RemovalReason.WORDING,),
    NEARLY_THE_SAME: (RemovalReason.NEAR,),
    PERPLEXITY: (RemovalReason.SURPRISING, RemovalReason.PLAIN),
    CROWDED: (RemovalReason.CROWDED,),
}
_ORDER: Final = (EQUAL_TEXTS, WORDING, TOKENS, EMBEDDINGS, CLUSTERS, NEARLY_THE_SAME, PERPLEXITY, CROWDED)


class ChainStep(msgspec.Struct, frozen=True, kw_only=True):
    """One step.

    Attributes:
        read: rows that it has read; fewer than `rows_in` if the model reads a sample.
        seconds: how long that took here; None: it did not run.
        hours: for every row of the whole set, on the machine without GPUs.
    """

    name: str
    rows_in: int
    rows_out: int
    bytes_in: int
    bytes_out: int
    read: int
    seconds: float | None
    hours: float | None


class Preparation(msgspec.Struct, frozen=True, kw_only=True):
    """The chain, and the cost of running it over the whole set.

    Attributes:
        scale: the whole set, relative to the file as it lies on the disk.
        rows: with text, of which the share that stays was found; `rows_compared`: by the model, too.
        processors: of the machine; `assumed_processors`: as many as here, because nobody states them.
        gpu_usd_hour: of the machine with GPUs that would do it instead; None: unknown.
    """

    steps: Sequence[ChainStep]
    scale: float
    rows: int
    rows_compared: int
    machine: CpuMachine
    processors: float
    assumed_processors: bool
    processors_here: int
    gpu_usd_hour: float | None
    whole_bytes: float
    kept_bytes: float

    @property
    def hours(self) -> float:
        """All steps that ran, over every row."""
        return sum(step.hours or 0.0 for step in self.steps)

    @property
    def hours_without_model(self) -> float:
        """The steps that no GPU speeds up."""
        return sum(step.hours or 0.0 for step in self.steps if step.name not in _MODEL_STEPS)


class ChainSetting(msgspec.Struct, frozen=True, kw_only=True):
    """Where the chain would run, and over how much."""

    machine: CpuMachine
    processors: float | None = None  # None: as many as the machine states, otherwise as here
    processors_here: int
    whole_bytes: float | None = None  # None: the file is the whole set
    gpu_usd_hour: float | None = None


def preparation_of(audit: Audit, setting: ChainSetting) -> Preparation:
    """The chain of an audit, and its cost."""
    own_bytes = int(audit.scanned.rows["bytes"].sum(dtype=np.int64))
    scale = 1.0 if setting.whole_bytes is None else setting.whole_bytes / max(1, audit.path.stat().st_size)
    stated = setting.processors or setting.machine.processors
    processors = stated or float(setting.processors_here)
    faster = processors / setting.processors_here
    steps = tuple(_steps(audit, scale, faster))
    whole_bytes = setting.whole_bytes or own_bytes
    return Preparation(
        steps=steps,
        scale=scale,
        rows=len(audit.scanned.rows),
        rows_compared=len(audit.read.scanned.rows),
        machine=setting.machine,
        processors=processors,
        assumed_processors=stated is None,
        processors_here=setting.processors_here,
        gpu_usd_hour=setting.gpu_usd_hour,
        whole_bytes=whole_bytes,
        kept_bytes=(steps[-1].bytes_out if steps else own_bytes) / max(1, own_bytes) * whole_bytes,
    )


def _steps(audit: Audit, scale: float, faster: float) -> Iterator[ChainStep]:
    left = np.ones(len(audit.reasons), bool)
    sizes = audit.scanned.rows["bytes"]
    for name in _ORDER:
        before = int(left.sum()), int(sizes[left].sum(dtype=np.int64))
        for reason in _REMOVES.get(name, ()):
            left &= audit.reasons != reason
        after = int(left.sum()), int(sizes[left].sum(dtype=np.int64))
        read, seconds = _rows_read(audit, name), audit.seconds.get(name)
        hours = None
        if seconds is not None:
            whole_s = _whole_s(audit, name, scale, read, seconds)
            hours = whole_s / HOUR_S / (1 if name in _SERIAL else faster)
        if seconds is None and before == after and name != PERPLEXITY:
            continue  # the rule is off
        yield ChainStep(
            name=name,
            rows_in=before[0],
            rows_out=after[0],
            bytes_in=before[1],
            bytes_out=after[1],
            read=read if seconds is not None else 0,
            seconds=seconds,
            hours=hours,
        )


def _rows_read(audit: Audit, name: str) -> int:
    """The rows that a step has read."""
    if name == EQUAL_TEXTS:
        return len(audit.scanned.rows) + sum(audit.scanned.skipped.values())
    if name == WORDING:
        return int((audit.exact == NO_ROW).sum())
    of = audit.read
    return len(of.scanned.rows) if name in {TOKENS, PERPLEXITY, CLUSTERS} else _distinct(of)


def _whole_s(audit: Audit, name: str, scale: float, read: int, seconds: float) -> float:
    """How long a step takes over every row of the whole set, with the processors here."""
    every = {EQUAL_TEXTS: read, TOKENS: len(audit.scanned.rows), PERPLEXITY: len(audit.scanned.rows)}
    rows = every.get(name, _distinct(audit)) * scale
    if name == CLUSTERS and audit.sample is None:
        rows = len(audit.scanned.rows) * scale
    factor = rows / max(1, read)
    if name == CLUSTERS and rows > max(read, MAX_KMEANS_ROWS):
        fixed_s, row_s = measure_mini_batches(audit.read.scanned.vectors, audit.rules.clusters, audit.rules.seed)
        return fixed_s + row_s * rows
    if name != NEARLY_THE_SAME:
        return seconds * factor
    clusters = audit.read.clusters.sizes
    return seconds * compared_pairs(clusters, factor) / max(1.0, compared_pairs(clusters, 1.0))


def _distinct(audit: Audit) -> int:
    """Rows that repeat no other one: only these are embedded."""
    exact = audit.exact if len(audit.exact) == len(audit.scanned.rows) else audit.exact[: len(audit.scanned.rows)]
    return max(1, int((exact == NO_ROW).sum()))


# --- as JSON, lines and a table ---------------------------------------------------------------------------------------


def preparation_json(prepared: Preparation) -> dict[str, Any]:
    """The chain for the report; hours and dollars are for every row of the whole set."""
    low, high = prepared.machine.usd_hour
    gpu, hours = prepared.gpu_usd_hour, prepared.hours
    return {
        "whole_bytes": round(prepared.whole_bytes),
        "kept_bytes": round(prepared.kept_bytes),
        "scale": prepared.scale,
        "rows": prepared.rows,
        "rows_compared": prepared.rows_compared,
        "steps": [_step_json(step, low, high, gpu) for step in prepared.steps],
        "hours": hours,
        "machine_usd_hour": [low, high],
        "machine_from": prepared.machine.source,
        "machine_offers": prepared.machine.offers,
        "processors": prepared.processors,
        "processors_assumed": prepared.assumed_processors,
        "processors_here": prepared.processors_here,
        "cost_usd": [hours * low, hours * high],
        "gpu_machine_usd_hour": gpu,
        "gpu_cost_usd": None if gpu is None else [prepared.hours_without_model * gpu, hours * gpu],
    }


def _step_json(step: ChainStep, low: float, high: float, gpu: float | None) -> dict[str, Any]:
    hours = step.hours
    return msgspec.structs.asdict(step) | {
        "cost_usd": None if hours is None else [hours * low, hours * high],
        "gpu_cost_usd": None if hours is None or gpu is None else hours * gpu,
    }


COLUMNS: Final = ("step", "rows in", "rows out", "bytes out", "time here", "whole, h", "USD")


def step_cells(prepared: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
    """The cells of a table, one line per step."""
    for step in prepared["steps"]:
        if step["seconds"] is None:
            time, hours, cost = "not run", "–", "–"
        else:
            of = "" if step["read"] >= step["rows_in"] else f" ({step['read']:,} rows)"
            time, hours = f"{step['seconds']:,.1f} s{of}", f"{step['hours']:,.3g}"
            cost = _usd_range(step["cost_usd"])
        if step["name"] == CROWDED:
            time, hours, cost = "–", "–", "–"
        sizes = f"{step['rows_in']:,}", f"{step['rows_out']:,}", size_text(step["bytes_out"])
        yield step["name"], *sizes, time, hours, cost


def report_lines(report: Mapping[str, Any]) -> list[str]:
    """Every line of a report."""
    return [*lines_for(report), *preparation_lines(report["preparation"])]


def preparation_lines(prepared: Mapping[str, Any]) -> Iterator[str]:
    """What the whole costs, where, and by which assumptions."""
    whole, kept = size_text(prepared["whole_bytes"]), size_text(prepared["kept_bytes"])
    price = _usd_range(prepared["machine_usd_hour"], price_text)
    count = f", of {prepared['machine_offers']:,}" if prepared["machine_offers"] else ""
    bound = "at most " if _is_bound(prepared) else ""
    yield (
        f"Preparing {whole}, of which {bound}{kept} stay: {prepared['hours']:,.3g} h,"
        f" {_usd_range(prepared['cost_usd'])} on a machine without GPUs at {price} USD per hour"
        f" ({prepared['machine_from']}{count})"
    )
    assumed = "as many processors as here" if prepared["processors_assumed"] else "processors"
    scale = f"; {prepared['scale']:,.4g} times the rows of this file" if prepared["scale"] != 1 else ""
    yield (
        f"  assumes {assumed} ({prepared['processors']:g}), each as fast as one of the {prepared['processors_here']}"
        f" here{scale}; the model reads every row"
    )
    if bound:
        compared = prepared["rows_compared"]
        by_model = "" if compared == prepared["rows"] else f", of which the model compared {compared:,}"
        yield f"  what stays is the share found in {prepared['rows']:,} rows{by_model}; in more rows more repeats"
    if prepared["gpu_cost_usd"] is not None:
        low, high = prepared["gpu_cost_usd"]
        yield (
            f"On the machine with the GPU, at {price_text(prepared['gpu_machine_usd_hour'])} USD per hour:"
            f" {dollars(high)} if its processors do the same, and {dollars(low)} at least,"
            " for the steps that no GPU does faster"
        )


def _is_bound(prepared: Mapping[str, Any]) -> bool:
    """Was the share that stays found in fewer rows than it is stated for?"""
    return bool(prepared["scale"] > 1 or prepared["rows_compared"] < prepared["rows"])


def _usd_range(bounds: Sequence[float], text: Any = dollars) -> str:
    low, high = text(bounds[0]), text(bounds[1])
    return low if low == high else f"{low}–{high.removeprefix('$')}"
