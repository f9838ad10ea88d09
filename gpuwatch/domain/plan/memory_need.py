"""The GPU memory that a model needs, by parts, and the number of cards that hold it. Pure.

Weights, gradients and optimizer states as in Rajbhandari et al. (ZeRO, 2020: 16 bytes per parameter for AdamW in mixed
precision), activations as in Korthikanti et al. (Reducing Activation Recomputation, 2022: 34 bytes per token, width and
layer in 16 bits with fused attention, 2 if each layer is recomputed), 4-bit weights as in Dettmers et al. (QLoRA, 2023:
4.127 bits with doubly quantised constants, one matrix at a time in 16 bits); embeddings and the output layer stay in 16
bits, as in transformers and bitsandbytes. All in GB of 10⁹ bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import ceil
from typing import TYPE_CHECKING, Final

import msgspec

from gpuwatch.domain.market.gpu_cards import GpuSpecs, gpu_specs
from gpuwatch.domain.plan.architectures.language_models import LanguageModel
from gpuwatch.domain.plan.architectures.quantisation import Quantisation
from gpuwatch.domain.plan.architectures.transformer_shape import LayerCache, LinearRole, TransformerShape
from gpuwatch.domain.plan.networks.network_shape import NetworkShape
from gpuwatch.domain.plan.roofline import BYTES_PER_WEIGHT, Precision, TrainingMethod, lacks_bf16, lacks_fp8

if TYPE_CHECKING:
    from gpuwatch.domain.plan.workload import Workload

GB: Final = 1e9
GIB_GB: Final = 2**30 / GB
RESERVE: Final = 0.10  # share of a card that stays free, as in vLLM by default
OVERHEAD_GB: Final = 1.0  # per card: CUDA context, libraries, communication buffers
_MACHINE: Final = 8  # cards per machine
_PREFILL: Final = 8192  # tokens that an inference server prefills at once (vLLM's default)
MEMORY_METHOD_TEXT: Final = (
    "parts: ZeRO (2020) for weights, gradients, optimizer; Korthikanti et al. (2022) for activations; "
    "QLoRA (2023) for 4 bits"
)
OPTIMIZER_BYTES: Final[Mapping[str, float]] = {  # bytes of state per trained parameter
    "adamw": 8.0,
    "adamw8bit": 2.0,
    "lion": 4.0,
    "sgd-momentum": 4.0,
    "sgd": 0.0,
    "adafactor": 0.0,  # row and column statistics only
}
_ADAPTED: Final = {  # the matrices adapted by LoRA
    "all": frozenset(LinearRole) - {LinearRole.ROUTER},
    "qv": frozenset({LinearRole.QUERY, LinearRole.VALUE}),
}
_QUANT_BITS: Final = 0.127  # constants of 4-bit weights, per parameter


class MemoryPart(msgspec.Struct, frozen=True):
    """One part of the memory."""

    name: str
    gb: float
    how: str


class MemoryNeed(msgspec.Struct, frozen=True, kw_only=True):
    """All parts, without the overhead of each card (`OVERHEAD_GB`).

    Attributes:
        measured: the peak that was measured for exactly this work, and what measured it; it counts before the parts.
    """

    workload: Workload
    parts: tuple[MemoryPart, ...]
    measured: MemoryPart | None = None

    @property
    def gb(self) -> float:
        """Total, without the overhead of each card."""
        return self.counted_gb if self.measured is None else self.measured.gb

    @property
    def counted_gb(self) -> float:
        """The sum of the parts."""
        return sum(part.gb for part in self.parts)


def memory_need(work: Workload) -> MemoryNeed:
    """The memory that a workload needs. Raises ValueError: the combination is impossible."""
    if work.method is TrainingMethod.FULL and work.precision in (Precision.INT8, Precision.INT4):
        raise ValueError(f"weights in {work.precision.value} cannot be trained: use method qlora or lora, or bf16")
    if work.method is TrainingMethod.QLORA and work.precision is Precision.FP8:
        raise ValueError("QLoRA holds weights in 4 bits and computes in 16: set precision to bf16 or fp16, not fp8")
    if not work.trains and (work.offload or work.micro_batch is not None):
        raise ValueError("CPU offload and micro-batches apply to training only")
    parts = [_weights(work), *_beside_four_bits(work)]
    if work.input_gb:
        how = f"{work.at_once:,} × {work.input_gb:g} GB"
        parts.append(MemoryPart("input", work.at_once * work.input_gb, how))
    if work.model.network is not None:
        parts += [*(_trained(work) if work.trains else ()), _network_values(work, work.model.network)]
        parts = _offloaded(work, parts) if work.offload else parts
    elif work.trains:
        parts += _trained(work)
        parts.append(_activations(work))
        parts.append(_logits(work))
        parts = _offloaded(work, parts) if work.offload else parts
    else:
        parts += [_kv_cache(work), _prefill(work)]
    return MemoryNeed(workload=work, parts=tuple(parts))


def gb_read_per_step(work: Workload) -> float:
    """GB that a server reads to generate one more token of each sequence: the weights, and half of a full KV cache.

    For a mixture of experts, the experts of all sequences, but at most all experts.
    """
    model = work.model
    experts = min(1.0, work.batch * model.active_params / model.params)
    return _weights(work).gb * experts + _kv_cache(work).gb / 2


def adapter_params(work: Workload) -> int:
    """Trained parameters of a workload's adapters. Raises ValueError: a network has no such targets."""
    network = work.model.network
    if network is None or work.model.shape.own:  # Whisper's matrices are known by their roles
        return lora_params(work.model.shape, work.rank, work.targets)
    if work.targets != "all":
        raise ValueError(f"targets {work.targets}: adapters of {network.kind} are counted for all matrices only")
    return work.rank * network.adapted


def lora_params(shape: TransformerShape, rank: int, targets: str) -> int:
    """Trained parameters: rank × (inputs + outputs) of each matrix with an adapter (Hu et al., 2021)."""
    roles = _ADAPTED[targets]
    return rank * sum(
        (linear.inputs + linear.outputs) * linear.count for linear in shape.linears() if linear.role in roles
    )


def usable_gb(memory_gib: float, reserve: float = RESERVE) -> float:
    """The memory of one card that a workload may fill; `reserve` is the share that stays free."""
    return max(0.0, memory_gib * GIB_GB * (1 - reserve) - OVERHEAD_GB)


def cards_for(gb: float, memory_gib: float, reserve: float = RESERVE) -> int:
    """Cards that hold the workload, divided evenly and rounded up."""
    usable = usable_gb(memory_gib, reserve)
    return ceil(round(gb / usable, 9)) if usable else 0


def even_card_count(cards: int, shape: TransformerShape) -> int:
    """The next count that divides all layers evenly: 1, 2, 4, 8 within a machine, then whole machines."""
    for count in (1, 2, 4, _MACHINE):
        if cards <= count and shape.heads % count == 0:
            return count
    return ceil(cards / _MACHINE) * _MACHINE if shape.heads % _MACHINE == 0 else cards


def cards_hold(gb: float, memory_gib: float, cards: int) -> bool:
    """Do this many cards hold it?"""
    return gb <= cards * usable_gb(memory_gib) + 1e-9


def bytes_per_weight(work: Workload) -> float:
    """Bytes of a weight in GPU memory, including the constants of quantised weights."""
    if (published := published_weights(work)) is not None:
        return published.bytes_per_weight
    held = _held(work)
    return BYTES_PER_WEIGHT[held] + (_QUANT_BITS / 8 if held is Precision.INT4 else 0.0)


def published_weights(work: Workload) -> Quantisation | None:
    """The quantisation of the published files, if the weights stay as they are."""
    stay = work.as_published and work.method in {TrainingMethod.INFERENCE, TrainingMethod.LORA}
    return work.model.quantisation if stay else None


def _held(work: Workload) -> Precision:
    return Precision.INT4 if work.method is TrainingMethod.QLORA else work.precision


def _weights(work: Workload) -> MemoryPart:
    params = work.model.params - (_sixteen_bit_params(work.model) if _has_four_bits(work) else 0.0)
    held, gb = _held(work), params * bytes_per_weight(work) / GB
    if (published := published_weights(work)) is not None:
        return MemoryPart("weights", gb, published.text)
    if held is Precision.INT4:
        return MemoryPart("weights", gb, "0.5 bytes per parameter, and 0.127 bits of constants")
    return MemoryPart("weights", gb, f"{BYTES_PER_WEIGHT[held]:g} bytes a parameter ({held.value})")


def _network_values(work: Workload, network: NetworkShape) -> MemoryPart:
    """What the blocks of another network keep; `context` does not apply, as one input is of one size."""
    width = 4.0 if work.precision is Precision.FP32 else 2.0
    if not work.trains:
        values, how = network.working_values, "the largest block, and skip connections"
    else:
        values = network.trained_values(recompute=work.recompute)
        how = "inputs of all blocks and one full block (recomputed)" if work.recompute else "all blocks kept"
    return MemoryPart("activations", work.at_once * values * width / GB, f"{work.at_once:,} × {network.unit}: {how}")


def _beside_four_bits(work: Workload) -> list[MemoryPart]:
    """What 4-bit weights need beside themselves: one matrix at a time is computed with in 16 bits (QLoRA, 2023)."""
    if not _has_four_bits(work):
        return []
    parts = []
    if kept := _sixteen_bit_params(work.model):
        name = "embeddings" if work.model.network is None else "no matrices"
        parts.append(MemoryPart(name, kept * 2 / GB, "2 bytes a parameter: libraries quantise matrices alone"))
    largest = max((linear.weights for linear in work.model.shape.linears()), default=0)
    if largest and (work.model.network is None or work.model.shape.own):
        parts.append(MemoryPart("dequantised", largest * 2 / GB, "the largest matrix, in 16 bits while it is used"))
    return parts


def _has_four_bits(work: Workload) -> bool:
    return _held(work) is Precision.INT4 and published_weights(work) is None


def _sixteen_bit_params(model: LanguageModel) -> float:
    """Embeddings, the output layer and encoders, which stay in 16 bits; of a network, all but its matrices."""
    shape = model.shape
    if model.network is not None:
        return model.params - model.network.matrices
    words = shape.vocab * shape.hidden * (1 if shape.tied else 2)
    return min(model.params, words + sum(one.params for one in shape.beside))


def _trained(work: Workload) -> list[MemoryPart]:
    states = OPTIMIZER_BYTES[work.optimizer]
    if work.method is TrainingMethod.FULL:
        count, each = work.model.params, max(2.0, BYTES_PER_WEIGHT[work.precision])
        parts = [MemoryPart("gradients", count * each / GB, f"{each:g} bytes a parameter")]
        if work.master and BYTES_PER_WEIGHT[work.precision] < BYTES_PER_WEIGHT[Precision.FP32]:
            parts.append(MemoryPart("master copy", count * 4 / GB, "4 bytes per parameter, updated by the optimizer"))
    else:
        count = adapter_params(work)
        trained = f"{count / 1e6:,.1f} M trained parameters, 4 bytes each"
        parts = [
            MemoryPart("adapters", count * 4 / GB, trained),
            MemoryPart("gradients", count * 4 / GB, "4 bytes per trained parameter"),
        ]
    parts.append(
        MemoryPart("optimizer", count * states / GB, f"{work.optimizer}: {states:g} bytes per trained parameter")
    )
    return parts


def _offloaded(work: Workload, parts: list[MemoryPart]) -> list[MemoryPart]:
    """The parts that stay on the GPUs; of fixed weights, two layers at a time (Ren et al., ZeRO-Offload)."""
    if work.method is TrainingMethod.FULL:
        return [part for part in parts if part.name not in {"master copy", "optimizer"}]
    weights, *others = parts
    layers = work.model.shape.layers
    two = MemoryPart(
        "weights", weights.gb * min(1.0, 2 / layers), f"2 of {layers} layers at a time; the rest is in CPU memory"
    )
    return [two, *others]


def _activations(work: Workload) -> MemoryPart:
    shape, tokens = work.model.shape, work.at_once * work.context
    width = 2.0 if work.precision is Precision.FP32 else 1.0  # the figures are for 16 bits
    layer = 34.0 * tokens * shape.hidden * width
    # A product with 4-bit weights keeps its input for the backward pass (bitsandbytes' MatMul4Bit); one with fixed
    # 16-bit weights does not. Four inputs a layer: of the queries, of the output, and of the feed-forward matrices.
    if not work.fused_attention:
        layer += 5.0 * shape.heads * work.context * tokens * width
    if work.method is TrainingMethod.QLORA:
        layer += 2.0 * tokens * (3 * shape.hidden + shape.inner_width)
    if work.recompute:
        gb = (2.0 * tokens * shape.hidden * width * shape.layers + layer) / GB
        return MemoryPart("activations", gb, f"{tokens:,} tokens, inputs of all layers and one full layer (recomputed)")
    return MemoryPart("activations", layer * shape.layers / GB, f"{tokens:,} tokens, all {shape.layers} layers kept")


def _logits(work: Workload) -> MemoryPart:
    tokens, vocab = work.at_once * work.context, work.model.shape.vocab
    return MemoryPart(
        "logits", 8.0 * tokens * vocab / GB, f"{vocab:,} words per token, and their gradients, 4 bytes each"
    )


def _kv_cache(work: Workload) -> MemoryPart:
    shape, tokens = work.model.shape, work.batch * work.context
    each = 4.0 if work.precision is Precision.FP32 else 2.0
    gb = shape.held_values(work.batch, work.context, _PREFILL) * each / GB
    layers = " + ".join(_cache_text(cache) for cache in shape.layer_caches) or "no layer"
    state = f", and {shape.state * work.batch * each / GB:,.2f} GB whatever the length" if shape.state else ""
    return MemoryPart("KV cache", gb, f"{tokens:,} tokens × ({layers}) × {each:g} bytes{state}")


def _cache_text(cache: LayerCache) -> str:
    window = f" of the last {cache.window:,} tokens" if cache.window else ""
    return f"{cache.layers} layers × {cache.values:,}{window}"


def _prefill(work: Workload) -> MemoryPart:
    shape, tokens = work.model.shape, min(work.batch * work.context, _PREFILL)
    gb = 2.0 * tokens * (2 * shape.hidden + 3 * shape.inner_width) / GB + 4.0 * work.batch * shape.vocab / GB
    return MemoryPart("activations", gb, f"one layer for {tokens:,} prompt tokens")


# --- cards that hold it -----------------------------------------------------------------------------------------------


class CardFit(msgspec.Struct, frozen=True, kw_only=True):
    """A number of cards that hold the workload."""

    gpu: GpuSpecs
    least: int  # cards that are enough to hold it
    cards: int  # cards to rent: a count that divides all layers evenly
    filled: float  # used share of each card, its overhead included, with `cards` cards
    against: tuple[str, ...]  # reasons against it

    @property
    def is_even(self) -> bool:
        """Does `least` already divide the layers evenly?"""
        return self.cards == self.least


def fitting_cards(
    needed: MemoryNeed, most_cards: int, names: Iterable[str] | None = None, reserve: float = RESERVE
) -> list[CardFit]:
    """Cards that can hold it, sorted by: no reasons against them, even counts, few cards, small cards.

    Args:
        names: canonical names; None: the whole catalogue.
        reserve: the share of each card that stays free.
    """
    specs = gpu_specs()
    chosen = specs.values() if names is None else [specs[name] for name in names if name in specs]
    found = [fit for one in chosen if (fit := _fit(needed, one, reserve)) is not None and fit.cards <= most_cards]
    return sorted(found, key=lambda fit: (len(fit.against), not fit.is_even, fit.cards, fit.gpu.memory_gib))


def _fit(needed: MemoryNeed, gpu: GpuSpecs, reserve: float) -> CardFit | None:
    least = cards_for(needed.gb, gpu.memory_gib, reserve)
    if not least:
        return None
    cards = even_card_count(least, needed.workload.model.shape)
    filled = (needed.gb / cards + OVERHEAD_GB) / (gpu.memory_gib * GIB_GB)
    return CardFit(gpu=gpu, least=least, cards=cards, filled=filled, against=tuple(_against(needed, gpu, cards)))


def _against(needed: MemoryNeed, gpu: GpuSpecs, cards: int) -> Iterable[str]:
    """Training needs matrix units and a fast link between the cards; inference needs neither."""
    if needed.workload.precision is Precision.BF16 and lacks_bf16(gpu.name):
        yield "no bf16"
    if not needed.workload.trains:
        return
    if needed.workload.precision is Precision.FP8 and lacks_fp8(gpu.name):
        yield "no fp8"
    if not gpu.has_tensor_cores:
        yield "no Tensor cores"
    if cards > 1 and not gpu.nvlink and gpu.form_factor != "OAM":  # OAM boards have their own mesh
        yield "no NVLink"
