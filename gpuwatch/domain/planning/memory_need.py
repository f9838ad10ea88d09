"""How much GPU memory a model wants, by parts, and how many cards hold it.

Weights, gradients and optimizer states are counted as Rajbhandari et al. do (ZeRO, 2020: 16 bytes a parameter for
AdamW in mixed precision), activations as Korthikanti et al. do (Reducing Activation Recomputation, 2022: 34 bytes
per token, width and layer in 16 bits with fused attention, 2 where each layer is computed again), 4-bit weights as
Dettmers et al. do (QLoRA, 2023: 4.127 bits with doubly quantised constants). All in GB of 10⁹ bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from math import ceil
from typing import Final

import msgspec

from gpuwatch.domain.market.gpu_specs import GpuSpecs, gpu_specs
from gpuwatch.domain.planning.job_hours import lacks_bf16
from gpuwatch.domain.planning.language_models import LanguageModel, TransformerShape

GB: Final = 1e9
GIB_GB: Final = 2**30 / GB
RESERVE: Final = 0.10  # of a card, left free: as vLLM does by default
OVERHEAD_GB: Final = 1.0  # of each card: CUDA's context, libraries, buffers for talking to the others
_MACHINE: Final = 8  # cards; more are several machines
_PREFILL: Final = 8192  # tokens that an inference server reads in at once (vLLM's default)
METHOD_TEXT: Final = (
    "parts: ZeRO (2020) for weights, gradients, optimizer; Korthikanti et al. (2022) for activations; "
    "QLoRA (2023) for 4 bits"
)


class TrainingMethod(StrEnum):
    """What is done with the model."""

    FULL = "full"
    LORA = "lora"
    QLORA = "qlora"
    INFERENCE = "inference"


class Precision(StrEnum):
    """How a weight is held."""

    FP32 = "fp32"
    BF16 = "bf16"
    FP16 = "fp16"
    FP8 = "fp8"
    INT8 = "int8"
    INT4 = "int4"


BYTES_PER_WEIGHT: Final[Mapping[Precision, float]] = {
    Precision.FP32: 4.0,
    Precision.BF16: 2.0,
    Precision.FP16: 2.0,
    Precision.FP8: 1.0,
    Precision.INT8: 1.0,
    Precision.INT4: 0.5,
}
OPTIMIZER_BYTES: Final[Mapping[str, float]] = {  # bytes of states for each trained parameter
    "adamw": 8.0,
    "adamw8bit": 2.0,
    "lion": 4.0,
    "sgd-momentum": 4.0,
    "sgd": 0.0,
    "adafactor": 0.0,  # rows and columns alone
}
_QUANT_BITS: Final = 0.127  # constants of 4-bit weights, per parameter


class Workload(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be held in memory at once."""

    model: LanguageModel
    method: TrainingMethod = TrainingMethod.FULL
    precision: Precision = Precision.BF16
    optimizer: str = "adamw"
    batch: int = 1  # sequences at once, over all cards
    context: int = 4096  # tokens of a sequence
    recompute: bool = True  # activations of a layer are computed again on the way back ("gradient checkpointing")
    fused_attention: bool = True  # FlashAttention: no matrix of context × context is held
    master: bool = True  # weights under 32 bits have a copy in 32, which the optimizer changes
    rank: int = 16  # of LoRA's matrices
    targets: str = "all"  # "all": every linear layer has an adapter; "qv": query and value alone

    @property
    def trains(self) -> bool:
        """Is anything learned?"""
        return self.method is not TrainingMethod.INFERENCE


class MemoryPart(msgspec.Struct, frozen=True):
    """One part of what is held."""

    name: str
    gb: float
    how: str


class MemoryNeed(msgspec.Struct, frozen=True, kw_only=True):
    """All parts. What lies on every card besides: `OVERHEAD_GB`."""

    workload: Workload
    parts: tuple[MemoryPart, ...]

    @property
    def gb(self) -> float:
        """Without what lies on every card."""
        return sum(part.gb for part in self.parts)


def memory_need(work: Workload) -> MemoryNeed:
    """The memory that a workload wants. Raises ValueError: it makes no sense."""
    if work.method is TrainingMethod.FULL and work.precision in (Precision.INT8, Precision.INT4):
        raise ValueError(f"weights in {work.precision.value} cannot be trained: method qlora or lora, or bf16")
    parts = [_weights(work)]
    if work.trains:
        parts += _trained(work)
        parts.append(_activations(work))
        parts.append(_logits(work))
    else:
        parts += [_kv_cache(work), _prefill(work)]
    return MemoryNeed(workload=work, parts=tuple(parts))


def lora_params(shape: TransformerShape, rank: int, targets: str) -> int:
    """What is trained: rank × (inputs + outputs) of each matrix with an adapter (Hu et al., 2021)."""
    hidden, kv, ffn = shape.hidden, shape.kv_width, shape.ffn
    widths = (hidden + hidden) + (hidden + kv)
    if targets == "all":
        widths += (hidden + kv) + (hidden + hidden) + 3 * (hidden + ffn) * shape.experts
    return shape.layers * rank * widths


def usable_gb(memory_gib: float) -> float:
    """What of one card a workload may fill."""
    return max(0.0, memory_gib * GIB_GB * (1 - RESERVE) - OVERHEAD_GB)


def cards_for(gb: float, memory_gib: float) -> int:
    """Cards that hold it, evenly divided: the rest of a division is a card of its own, and no card more."""
    usable = usable_gb(memory_gib)
    return ceil(round(gb / usable, 9)) if usable else 0


def even_card_count(cards: int, shape: TransformerShape) -> int:
    """The next count over which every layer divides evenly: 1, 2, 4, 8 within a machine, then whole machines."""
    for count in (1, 2, 4, _MACHINE):
        if cards <= count and shape.heads % count == 0:
            return count
    return ceil(cards / _MACHINE) * _MACHINE if shape.heads % _MACHINE == 0 else cards


def holds(gb: float, memory_gib: float, cards: int) -> bool:
    """Do so many cards hold it?"""
    return gb <= cards * usable_gb(memory_gib) + 1e-9


def source_gb(params: float, precision: Precision, batch: int = 0, input_gb: float = 0.0) -> float:
    """As the sources reckon: weights and the batch's input, nothing else. 7B in 32 bits with 4 × 0.5 GB are 30."""
    return params * BYTES_PER_WEIGHT[precision] / GB + batch * input_gb


def source_cards(gb: float, memory_gb: float) -> int:
    """As the sources count: by the memory that is printed on the card."""
    return ceil(round(gb / memory_gb, 9))


def _weights(work: Workload) -> MemoryPart:
    held = Precision.INT4 if work.method is TrainingMethod.QLORA else work.precision
    params, each = work.model.params, BYTES_PER_WEIGHT[held]
    if held is Precision.INT4:
        gb = params * (each + _QUANT_BITS / 8) / GB
        return MemoryPart("weights", gb, "0.5 bytes a parameter, and 0.127 bits of constants")
    return MemoryPart("weights", params * each / GB, f"{each:g} bytes a parameter ({held.value})")


def _trained(work: Workload) -> list[MemoryPart]:
    states = OPTIMIZER_BYTES[work.optimizer]
    if work.method is TrainingMethod.FULL:
        count, each = work.model.params, max(2.0, BYTES_PER_WEIGHT[work.precision])
        parts = [MemoryPart("gradients", count * each / GB, f"{each:g} bytes a parameter")]
        if work.master and BYTES_PER_WEIGHT[work.precision] < BYTES_PER_WEIGHT[Precision.FP32]:
            parts.append(
                MemoryPart("master copy", count * 4 / GB, "4 bytes a parameter: the optimizer changes this one")
            )
    else:
        count = lora_params(work.model.shape, work.rank, work.targets)
        trained = f"{count / 1e6:,.1f} M trained parameters, 4 bytes each"
        parts = [
            MemoryPart("adapters", count * 4 / GB, trained),
            MemoryPart("gradients", count * 4 / GB, "4 bytes each of these"),
        ]
    parts.append(
        MemoryPart("optimizer", count * states / GB, f"{work.optimizer}: {states:g} bytes a trained parameter")
    )
    return parts


def _activations(work: Workload) -> MemoryPart:
    shape, tokens = work.model.shape, work.batch * work.context
    width = 2.0 if work.precision is Precision.FP32 else 1.0  # the figures are for 16 bits
    layer = 34.0 * tokens * shape.hidden * width
    if not work.fused_attention:
        layer += 5.0 * shape.heads * work.context * tokens * width
    if work.recompute:
        gb = (2.0 * tokens * shape.hidden * width * shape.layers + layer) / GB
        return MemoryPart("activations", gb, f"{tokens:,} tokens, each layer's input and one layer whole (recomputed)")
    return MemoryPart("activations", layer * shape.layers / GB, f"{tokens:,} tokens, all {shape.layers} layers kept")


def _logits(work: Workload) -> MemoryPart:
    tokens, vocab = work.batch * work.context, work.model.shape.vocab
    return MemoryPart(
        "logits", 8.0 * tokens * vocab / GB, f"{vocab:,} words a token, and their gradients, 4 bytes each"
    )


def _kv_cache(work: Workload) -> MemoryPart:
    shape, tokens = work.model.shape, work.batch * work.context
    each = 4.0 if work.precision is Precision.FP32 else 2.0
    gb = 2.0 * shape.layers * shape.kv_width * tokens * each / GB
    return MemoryPart(
        "KV cache", gb, f"{tokens:,} tokens × {shape.layers} layers × 2 × {shape.kv_width} × {each:g} bytes"
    )


def _prefill(work: Workload) -> MemoryPart:
    shape, tokens = work.model.shape, min(work.batch * work.context, _PREFILL)
    gb = 2.0 * tokens * (2 * shape.hidden + 3 * shape.ffn) / GB + 4.0 * work.batch * shape.vocab / GB
    return MemoryPart("activations", gb, f"one layer for {tokens:,} tokens read in at once")


# --- which cards hold it ----------------------------------------------------------------------------------------------


class CardFit(msgspec.Struct, frozen=True, kw_only=True):
    """So many of a card hold the workload."""

    gpu: GpuSpecs
    least: int  # cards that hold it
    cards: int  # cards to rent: a count over which every layer divides evenly
    filled: float  # share of what may be filled, with `cards` of them
    against: tuple[str, ...]  # what speaks against it

    @property
    def is_even(self) -> bool:
        """Are the least cards such a count by themselves?"""
        return self.cards == self.least


def fitting_cards(needed: MemoryNeed, most_cards: int, names: Iterable[str] | None = None) -> list[CardFit]:
    """The cards that can hold it: nothing against them first, then even counts, then few cards, then small ones.

    Args:
        names: canonical names; None: the whole catalogue.
    """
    specs = gpu_specs()
    chosen = specs.values() if names is None else [specs[name] for name in names if name in specs]
    found = [fit for one in chosen if (fit := _fit(needed, one)) is not None and fit.cards <= most_cards]
    return sorted(found, key=lambda fit: (len(fit.against), not fit.is_even, fit.cards, fit.gpu.memory_gib))


def _fit(needed: MemoryNeed, gpu: GpuSpecs) -> CardFit | None:
    least = cards_for(needed.gb, gpu.memory_gib)
    if not least:
        return None
    cards = even_card_count(least, needed.workload.model.shape)
    filled = needed.gb / (cards * usable_gb(gpu.memory_gib))
    return CardFit(gpu=gpu, least=least, cards=cards, filled=filled, against=tuple(_against(needed, gpu, cards)))


def _against(needed: MemoryNeed, gpu: GpuSpecs, cards: int) -> Iterable[str]:
    """Training wants matrix units and a quick way between the cards; inference wants neither."""
    if needed.workload.precision is Precision.BF16 and lacks_bf16(gpu.name):
        yield "no bf16"
    if not needed.workload.trains:
        return
    if not gpu.has_tensor_cores:
        yield "no Tensor cores"
    if cards > 1 and not gpu.nvlink and gpu.form_factor != "OAM":  # whose boards have a mesh of their own
        yield "no NVLink"
