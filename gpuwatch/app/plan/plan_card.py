"""A card's specification with its sources, and what it is good for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any, Final

import msgspec

from gpuwatch.app.history.past_prices import gpu_names_of
from gpuwatch.app.plan.plan_request import request_of
from gpuwatch.app.plan.speed_table import throughput_table
from gpuwatch.domain.market.card_sources import CardSources, card_sources
from gpuwatch.domain.market.gpu_cards import GpuSpecs, gpu_specs
from gpuwatch.domain.plan.memory_need import cards_hold, memory_need
from gpuwatch.domain.plan.plan_schema import SizeRequest
from gpuwatch.domain.plan.roofline import WorkMethod, has_fast_link, lacks_bf16
from gpuwatch.errors import UsageError

_MAKERS: Final = {
    "nvidia": "NVIDIA", "amd": "AMD", "intel": "Intel", "huawei": "Huawei", "biren": "Biren", "iluvatar": "Iluvatar"
}  # fmt: skip
# Whose software replaces CUDA, with its name; images for NVIDIA's or AMD's cards do not run there.
_SOFTWARE: Final = {"huawei": "CANN", "biren": "BIRENSUPA", "iluvatar": "CoreX", "intel": "SynapseAI", "amd": "ROCm"}
_SIZES: Final = (405, 180, 123, 70, 32, 24, 14, 13, 8, 7, 3, 1)  # billions of parameters, of typical models
_METHODS: Final = (
    ("inference in bf16", "inference", "bf16"),
    ("inference in 4 bits", "inference", "int4"),
    ("QLoRA", "qlora", None),
    ("LoRA", "lora", None),
    ("full training", "full", None),
)
_CONTEXT: Final = 4096
_MACHINE: Final = 8
_TOKEN_GB: Final = 16.0  # read for a token of an 8B model in bf16
UNKNOWN: Final = "unknown"


class CardFigure(msgspec.Struct, frozen=True, kw_only=True):
    """One line of a specification. `value`: None: no source states it. `key`: its name in conditions and in JSON."""

    key: str
    label: str
    value: float | bool | str | None
    unit: str
    source: str

    @property
    def text(self) -> str:
        """The value with its unit, or "unknown"."""
        if self.value is None:
            return UNKNOWN
        if isinstance(self.value, bool):
            return "yes" if self.value else "no"
        return f"{self.value:,g} {self.unit}".rstrip() if isinstance(self.value, float) else self.value


class CardSheet(msgspec.Struct, frozen=True, kw_only=True):
    """A card: its specification, the largest models that it holds, and what it is good for."""

    specs: GpuSpecs
    title: str
    figures: tuple[CardFigure, ...]
    uses: tuple[str, ...]
    largest: dict[str, tuple[int | None, int | None]]  # work → billions of parameters on one card, and on eight
    note: str


def card_sheets(name: str) -> list[CardSheet]:
    """The cards with this name, or of this family. Raises UsageError: no card of the catalogue has it."""
    known = gpu_specs()
    found = [known[one] for one in gpu_names_of(name) if one in known]
    if not found:
        raise UsageError(f"{name!r}: the catalogue has no data sheet of it")
    return [_sheet(specs, card_sources()[specs.name]) for specs in found]


def _sheet(specs: GpuSpecs, sources: CardSources) -> CardSheet:
    made = [_MAKERS.get(specs.vendor, specs.vendor), specs.architecture, specs.form_factor, sources.released]
    largest = {label: _largest(specs.memory_gib, *work) for label, *work in _METHODS}
    return CardSheet(
        specs=specs,
        title=f"{specs.name}: {', '.join(filter(None, made))}",
        figures=tuple(_figures(specs, sources)),
        uses=tuple(_uses(specs, sources.line)),
        largest=largest,
        note=sources.note,
    )


def _figures(specs: GpuSpecs, sources: CardSources) -> Iterator[CardFigure]:
    sheet = sources.sheet
    rows: Sequence[tuple[str, str, float | bool | str | None, str, str]] = (
        ("gpu_ram", "memory", specs.memory_gib, "GiB", sheet),
        ("gpu_bw", "memory bandwidth", specs.bandwidth_gb_s, "GB/s", sheet),
        ("tflops", "FP16 or BF16, dense", specs.fp16_tflops, "TFLOP/s", sheet),
        ("fp8_tflops", "FP8, dense", specs.fp8_tflops, "TFLOP/s", sheet),
        ("interconnect", "interconnect", _link_name(specs), "", sheet),
        ("link_gb_s", "link to other GPUs, both ways", specs.link_gb_s, "GB/s", sheet),
        ("ecc", "ECC memory", specs.ecc, "", sources.ecc),
        ("datacenter_card", "data center card", specs.datacenter_card, "", sources.line),
        ("cuda_cores", "stream processors" if specs.vendor == "amd" else "CUDA cores", specs.cuda_cores, "",
         sources.chip),
        ("clock", "clock (boost)", specs.boost_mhz, "MHz", sources.chip),
        ("watts", "power", specs.power_w, "W", sheet),
    )  # fmt: skip
    for key, label, value, unit, source in rows:
        yield CardFigure(key=key, label=label, value=value, unit=unit, source="" if value is None else source)


def _link_name(specs: GpuSpecs) -> str | None:
    if specs.nvlink:
        return "NVLink"
    if specs.has_no_link:
        return "PCIe"
    if specs.has_bridge:
        return "NVLink bridge between pairs, else PCIe"
    if specs.vendor == "amd" and specs.form_factor in {"OAM", "socket"}:
        return "Infinity Fabric"
    return None


def _uses(specs: GpuSpecs, line_source: str) -> Iterator[str]:
    """What it is good for, one plain sentence each, and what speaks against it."""
    yield f"training: {_training(specs)}"
    yield f"inference: {_inference(specs)}"
    if specs.vendor in _SOFTWARE:
        yield f"software: {_SOFTWARE[specs.vendor]}; images for CUDA do not run on it"
    if specs.datacenter_card is False and "geforce-license" in line_source:
        yield "place: a card for games; the licence of its driver excludes data centers"


def _training(specs: GpuSpecs) -> str:
    if not specs.has_tensor_cores and (specs.vendor == "nvidia" or specs.fp16_tflops is not None):
        return "no: it has no matrix units (Tensor cores)"
    if specs.fp16_tflops is None:
        return f"{UNKNOWN}: no source states its rate in 16 bits"
    found = ["FP16 only, no bf16"] if lacks_bf16(specs.name) else []
    if has_fast_link(specs):
        found.append("several cards share a model over their own link")
    elif specs.has_no_link or specs.has_bridge:
        found.append("models that one card holds: several are joined by PCIe or pairs only")
    else:
        found.append(f"the link between several cards: {UNKNOWN}")
    return f"yes; {'; '.join(found)}"


def _inference(specs: GpuSpecs) -> str:
    if specs.bandwidth_gb_s is None:
        return f"{UNKNOWN}: no source states its memory bandwidth"
    if not cards_hold(_TOKEN_GB, specs.memory_gib, 1):
        return "small or quantised models: 8B in bf16 does not fit"
    reached = throughput_table().shares(WorkMethod.DECODE)
    slow, fast = (1000 * _TOKEN_GB / (specs.bandwidth_gb_s * share) for share in reached)
    return f"a token of an 8B model in bf16 in {fast:.0f} to {slow:.0f} ms, by its bandwidth"


def _largest(memory_gib: float, method: str, precision: str | None) -> tuple[int | None, int | None]:
    needs = _needs(method, precision)
    one, eight = (
        next((size for size, gb in needs if cards_hold(gb, memory_gib, cards)), None) for cards in (1, _MACHINE)
    )
    return one, eight


@cache
def _needs(method: str, precision: str | None) -> tuple[tuple[int, float], ...]:
    """GB by billions of parameters, largest first, for one sequence of 4,096 tokens."""
    found = []
    for size in _SIZES:
        keys: dict[str, Any] = {"model": f"{size}B", "method": method, "context": _CONTEXT}
        work = request_of(SizeRequest, keys if precision is None else keys | {"precision": precision}).workload()
        if work is not None:
            found.append((size, memory_need(work).gb))
    return tuple(found)


def plan_card_json(sheets: Sequence[CardSheet]) -> dict[str, Any]:
    """JSON of `gpuwatch plan card`: null: no source states it."""
    return {
        "cards": [
            {
                "gpu": sheet.specs.name,
                "family": sheet.specs.family,
                "vendor": sheet.specs.vendor,
                "architecture": sheet.specs.architecture,
                "form_factor": sheet.specs.form_factor,
                "figures": {figure.key: figure.value for figure in sheet.figures},
                "sources": {figure.key: figure.source or None for figure in sheet.figures},
                "good_for": list(sheet.uses),
                "largest_model_b": {
                    work: {"one_card": one, "eight_cards": eight} for work, (one, eight) in sheet.largest.items()
                },
                "note": sheet.note or None,
            }
            for sheet in sheets
        ]
    }
