"""How several cards share one model: tensor, pipeline and data parallelism, chosen by memory and traffic. Pure.

Volumes, in bytes that a GPU sends for a step:

- data parallelism: a ring all-reduce of the gradients, 2(n−1)/n × their bytes (Patarasuk and Yuan, 2009; NCCL's "bus
  bandwidth"). ZeRO 1 and 2 reduce gradients to one owner and gather the updated weights: the same, if both are of one
  width. ZeRO 3 (FSDP) gathers the weights twice as well: 1.5 times as much in all (Rajbhandari et al., 2020, section
  7). In several passes ZeRO 2 reduces in each of them, and ZeRO 3 gathers in each of them.
- tensor parallelism: two all-reduces of each layer's activations in the forward and two in the backward pass (Shoeybi
  et al., Megatron-LM, 2019), two more if activations are recomputed.
- pipeline parallelism: activations and their gradients over each boundary; (p−1)/m of the time nothing is computed, for
  m micro-batches (Narayanan et al., 2021, section 2.2, without interleaving). The first stage holds the activations of
  as many micro-batches as there are stages (the same, 1F1B), the last one the logits.

Tensor parallelism stays within a machine (Narayanan et al., takeaway 1). Links count at their nominal rate, which no
collective reaches, and nothing overlaps, though it does in reality. A step of inference is a token of each sequence.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from gpuwatch.domain.market.gpu_cards import GpuSpecs
from gpuwatch.domain.plan.memory_need import OVERHEAD_GB, gb_read_per_step, memory_need, usable_gb
from gpuwatch.domain.plan.roofline import Precision, TrainingMethod, arithmetic_s, has_fast_link, link_gb_s
from gpuwatch.domain.plan.throughput import speed_task_of

if TYPE_CHECKING:
    from gpuwatch.domain.plan.workload import Workload

_GB: Final = 1e9
SIMILAR: Final = 1.02  # times this close count as equal: then the simpler layout
_SHARDED_FROM: Final = {  # the ZeRO stage
    "optimizer": 1, "master copy": 1, "gradients": 2, "weights": 3, "embeddings": 3, "adapters": 3,
}  # fmt: skip
_ADAPTERS: Final = (TrainingMethod.LORA, TrainingMethod.QLORA)  # Accelerate starts Megatron-LM for all weights alone
_OF_TOKENS: Final = ("activations", "logits", "input", "KV cache")


class CardGroup(msgspec.Struct, frozen=True, kw_only=True):
    """The cards, and the links between them.

    Attributes:
        network_gbps: of a machine to the others, Gbit/s; None: there is one machine.
        network_source: who states it.
        reached: share of the nominal rate that published work of this kind reaches.
        warning: what cards of several kinds cost; None: they are of one kind.
    """

    gpu: GpuSpecs
    machines: int
    per_machine: int
    network_gbps: float | None
    network_source: str
    reached: float
    warning: str | None = None

    @property
    def count(self) -> int:
        """All cards."""
        return self.machines * self.per_machine

    @property
    def inside_gb_s(self) -> float:
        """One way, of a card to another one of its machine, GB/s."""
        return link_gb_s(self.gpu, self.per_machine, nvlink=has_fast_link(self.gpu))

    @property
    def between_gb_s(self) -> float:
        """One way, of a machine to the others, GB/s."""
        return (self.network_gbps or 0.0) / 8


class Layout(msgspec.Struct, frozen=True, kw_only=True):
    """One way to share the model.

    Attributes:
        zero: stage of ZeRO over the data-parallel group; 3 is FSDP's full sharding.
        micro: sequences that a replica processes at once.
        passes: how often it does so in a step.
        gb: memory of the fullest card, its overhead included.
        data_gb, tensor_gb, pipeline_gb: sent by each card for a step.
        data_s, tensor_s, pipeline_s: seconds of a step for that.
        compute_s: seconds of a step for arithmetic, or for reading the weights, without the bubble.
        bubble: share of the arithmetic's time that is added by an empty pipeline.
    """

    tensor: int
    pipeline: int
    data: int
    zero: int
    micro: int
    passes: int
    gb: float
    fits: bool
    compute_s: float = 0.0
    bubble: float = 0.0
    data_gb: float = 0.0
    tensor_gb: float = 0.0
    pipeline_gb: float = 0.0
    data_s: float = 0.0
    tensor_s: float = 0.0
    pipeline_s: float = 0.0

    @property
    def model(self) -> int:
        """Cards that hold one replica."""
        return self.tensor * self.pipeline

    @property
    def step_s(self) -> float:
        """Seconds of a step, if nothing overlaps and links reach their nominal rate."""
        return self.compute_s * (1 + self.bubble) + self.data_s + self.tensor_s + self.pipeline_s

    @property
    def text(self) -> str:
        """Such as "TP 8 × PP 2 × DP 4, ZeRO 1"."""
        sizes = (("TP", self.tensor), ("PP", self.pipeline), ("DP", self.data))
        parts = " × ".join(f"{name} {size}" for name, size in sizes if size > 1) or "one card"
        return f"{parts}, ZeRO {self.zero}" if self.zero else parts


def layouts(work: Workload, group: CardGroup) -> list[Layout]:
    """All ways to share a model on these cards, the best that fits first, then those that do not fit.

    Raises:
        ValueError: no layout divides the batch, or the cards cannot compute in this precision.
    """
    _check(work, group.gpu)
    sizes = _sizes(work)
    found = [
        _with_times(_layout(work, group, sizes, split), work, group, sizes)
        for tensor, pipeline in _splits(work, group)
        for zero in _stages(work, tensor * pipeline, group.count // (tensor * pipeline))
        for split in [(tensor, pipeline, zero)]
    ]
    if not found:
        raise ValueError(
            f"no layout: {group.count} cards cannot divide a batch of {work.batch} sequences, the heads and the layers "
            f"evenly: try --batch {_next_multiple(work.batch, group.count)}, or another number of cards"
        )
    least = min((one.step_s for one in found if one.fits), default=0.0)
    return sorted(found, key=lambda one: _rank(one, least))


def _check(work: Workload, gpu: GpuSpecs) -> None:
    if work.model.network is not None:
        raise ValueError(f"layouts are computed for language models alone, not for {work.model.network.kind}")
    if not gpu.fp16_tflops or not gpu.bandwidth_gb_s:
        raise ValueError(f"the data sheet of {gpu.name} lacks its 16-bit rate or its memory bandwidth")
    if work.precision is Precision.FP8 and work.trains and not gpu.fp8_tflops:
        raise ValueError(f"{gpu.name} has no 8-bit arithmetic: add --precision bf16")


def _next_multiple(batch: int, count: int) -> int:
    return -(-batch // count) * count


def _rank(one: Layout, least_s: float) -> tuple[bool, bool, int, int, float]:
    is_slower = one.step_s > least_s * SIMILAR
    if not one.fits:
        return True, False, 0, 0, one.gb
    if is_slower:
        return False, True, 0, 0, one.step_s
    return False, False, one.model, one.zero, one.step_s


def _splits(work: Workload, group: CardGroup) -> Iterator[tuple[int, int]]:
    """Sizes of tensor and pipeline parallelism that Megatron-LM, or vLLM, accepts for this model."""
    whole = work.offload or work.method in _ADAPTERS
    for tensor in [1] if whole else _divisors(group.per_machine):
        if not _divides(work, tensor):
            continue
        for pipeline in [1] if whole else _divisors(group.count // tensor):
            data = group.count // tensor // pipeline
            if last_stage(work, pipeline) > 0 and work.batch % data == 0:
                yield tensor, pipeline


def _divides(work: Workload, tensor: int) -> bool:
    """Heads and feed-forward width divide evenly; groups of keys divide, or are copied (vLLM and Megatron-LM alike)."""
    shape = work.model.shape
    groups = shape.kv_heads or shape.heads
    return (
        shape.heads % tensor == 0 and shape.ffn % tensor == 0 and (groups % tensor == 0 or tensor % groups == 0)
    )  # fmt: skip


def stage_layers(work: Workload, pipeline: int) -> int:
    """Layers of each stage but the last one, which may have fewer."""
    return -(-work.model.shape.layers // pipeline)


def last_stage(work: Workload, pipeline: int) -> int:
    """Layers of the last stage."""
    return work.model.shape.layers - stage_layers(work, pipeline) * (pipeline - 1)


def _divisors(number: int) -> list[int]:
    return [one for one in range(1, number + 1) if number % one == 0]


def _stages(work: Workload, model: int, data: int) -> Sequence[int]:
    """ZeRO stages; with tensor or pipeline parallelism Megatron-LM shards the optimizer alone."""
    if not work.trains:
        return (0,)
    if work.offload:  # DeepSpeed moves optimizers to the CPU from stage 1 on, weights in stage 3
        return (3,) if work.method in _ADAPTERS else (1, 2, 3)
    if data == 1:
        return (0,)
    return (0, 1, 2, 3) if model == 1 else (0, 1)


# --- memory -----------------------------------------------------------------------------------------------------------


def _sizes(work: Workload) -> Mapping[str, float]:
    """GB of each part; of training for one sequence, as activations grow with the sequences."""
    if not work.trains:
        return _parts(work)
    one = work.model_copy(update={"batch": 1, "micro_batch": None})
    return _parts(one) | {"weights": _parts(one.model_copy(update={"offload": False}))["weights"]}


def _parts(work: Workload) -> dict[str, float]:
    return {part.name: part.gb for part in memory_need(work).parts}


def _layout(work: Workload, group: CardGroup, sizes: Mapping[str, float], split: tuple[int, int, int]) -> Layout:
    tensor, pipeline, zero = split
    data = group.count // (tensor * pipeline)
    sequences = work.batch // data
    usable = usable_gb(group.gpu.memory_gib)
    if not work.trains:
        sizes = _parts(work.model_copy(update={"batch": sequences}))
    fixed = sum(_fixed_gb(name, gb, work, split, data) for name, gb in sizes.items() if name not in _OF_TOKENS)
    if zero == 3:  # the layer that computes and the next one are gathered (FSDP's prefetch)
        fixed += sizes["weights"] * min(1.0, 2 / work.model.shape.layers)
    each = _tokens_gb(sizes, work, tensor, pipeline)
    micro = _micro(work, sequences, pipeline, (usable - fixed) / each if each else float(sequences))
    held = fixed + each * (micro if work.trains else 1)
    return Layout(
        tensor=tensor,
        pipeline=pipeline,
        data=data,
        zero=zero,
        micro=micro,
        passes=sequences // micro,
        gb=held + OVERHEAD_GB,
        fits=held <= usable + 1e-9,
    )


def _fixed_gb(name: str, gb: float, work: Workload, split: tuple[int, int, int], data: int) -> float:
    """What the fullest card holds of a part that does not depend on tokens."""
    tensor, pipeline, zero = split
    if name == "weights" and work.offload and work.method in _ADAPTERS:
        return 0.0  # in CPU memory, but for the layers that are gathered
    if name == "gradients" and tensor * pipeline > 1 and _adds_in_32_bits(work):
        gb *= 2
    gb *= _stage_share(name, work, pipeline) / tensor
    return gb / data if zero >= _SHARDED_FROM.get(name, 4) else gb


def _adds_in_32_bits(work: Workload) -> bool:
    """Megatron-LM sums the gradients of bf16 weights in 32 bits (its guide: distributed optimizer, 18 or 6 + 12/d)."""
    return work.precision not in (Precision.FP32, Precision.FP16)


def _stage_share(name: str, work: Workload, pipeline: int) -> float:
    """The share of the fullest stage: its layers, and the words, which the first and the last stage hold."""
    if pipeline == 1 or name == "dequantised":
        return 1.0
    shape = work.model.shape
    copies = 1 if shape.tied else 2
    if name == "embeddings":
        return 1 / copies
    words = 0.0 if work.precision is Precision.INT4 else shape.vocab * shape.hidden / work.model.params
    return min(1.0, max(0.0, 1 - copies * words) * stage_layers(work, pipeline) / shape.layers + words)


def _tokens_gb(sizes: Mapping[str, float], work: Workload, tensor: int, pipeline: int) -> float:
    """What the fullest card holds for the tokens: of one sequence in training, of all in inference."""
    active, logits = sizes.get("activations", 0.0) / tensor, sizes.get("logits", 0.0) / tensor
    shape = work.model.shape
    # each card caches whole heads; a compressed cache of DeepSeek's kind is on all of them
    copies = max(1, tensor // (1 if shape.kv_rank else max(1, shape.kv_heads)))
    cache = sizes.get("KV cache", 0.0) * copies / tensor * stage_layers(work, pipeline) / shape.layers
    kept = active + logits if pipeline == 1 else max(active, active / pipeline + logits)
    return sizes.get("input", 0.0) + cache + kept


def _micro(work: Workload, sequences: int, pipeline: int, most: float) -> int:
    """Sequences at once: as stated; else one in a pipeline, for the least bubble, and as many as fit elsewhere."""
    if not work.trains:
        return sequences
    if work.micro_batch is not None:
        most = work.micro_batch * sequences / work.batch
    elif pipeline > 1:
        most = 1
    return max((one for one in _divisors(sequences) if one <= most), default=1)


# --- time -------------------------------------------------------------------------------------------------------------


def _with_times(one: Layout, work: Workload, group: CardGroup, sizes: Mapping[str, float]) -> Layout:
    shape, width = work.model.shape, 4.0 if work.precision is Precision.FP32 else 2.0
    tokens = work.batch // one.data * (work.context if work.trains else 1)  # of a replica in a step
    state_gb = tokens * shape.hidden * width / _GB  # of one layer
    rounds = (6 if work.recompute else 4) if work.trains else 2
    tensor_gb = rounds * stage_layers(work, one.pipeline) * _ring(one.tensor) * state_gb
    pipeline_gb = (2 if work.trains else 1) * state_gb / one.tensor if one.pipeline > 1 else 0.0
    data_gb, data_s = _data_traffic(one, work, group, sizes)
    crosses = group.machines > 1 and one.pipeline > 1
    pipeline_link = group.between_gb_s / group.per_machine if crosses else group.inside_gb_s
    return msgspec.structs.replace(
        one,
        compute_s=_compute_s(one, work, group),
        bubble=(one.pipeline - 1) / one.passes if work.trains else 0.0,
        data_gb=data_gb,
        tensor_gb=tensor_gb,
        pipeline_gb=pipeline_gb,
        data_s=data_s,
        tensor_s=tensor_gb / group.inside_gb_s,
        pipeline_s=pipeline_gb / pipeline_link if pipeline_gb else 0.0,
    )


def _ring(members: int) -> float:
    """What a member sends in a ring all-reduce, per byte: 2(n−1)/n."""
    return 2 * (members - 1) / members


def _data_traffic(
    one: Layout, work: Workload, group: CardGroup, sizes: Mapping[str, float]
) -> tuple[float, float]:  # fmt: skip
    """GB that a card sends for the gradients, and for weights with ZeRO; and the seconds for that."""
    if not work.trains or one.data == 1:
        return 0.0, 0.0
    split = (one.tensor, one.pipeline, 0)
    reduced = _fixed_gb("gradients", sizes["gradients"], work, split, 1)
    trained = "adapters" if work.method in _ADAPTERS else "weights"
    updated = sizes[trained] * _stage_share(trained, work, one.pipeline) / one.tensor
    gathered = updated if trained == "weights" else sizes["weights"] + sizes.get("embeddings", 0.0) + updated
    # a reduction to one owner, and a gathering, are each half of an all-reduce
    moved = {
        0: reduced,
        1: (reduced + updated) / 2,
        2: (reduced * one.passes + updated) / 2,
        3: (reduced / 2 + gathered) * one.passes,
    }[one.zero]
    inside = min(one.data, max(1, group.per_machine // one.tensor))
    across = one.data // inside
    groups = max(1, group.per_machine // inside)  # that share the machine's network
    seconds = _ring(inside) * moved / group.inside_gb_s
    if across > 1:
        seconds += groups * _ring(across) * moved / group.between_gb_s
    return _ring(one.data) * moved, seconds


def _compute_s(one: Layout, work: Workload, group: CardGroup) -> float:
    """Training: the arithmetic of `plan job`. Inference: reading weights and caches, stage after stage."""
    gpu = group.gpu
    if not work.trains:
        replica = work.model_copy(update={"batch": work.batch // one.data})
        return gb_read_per_step(replica) / one.tensor / (gpu.bandwidth_gb_s or 1.0) / group.reached
    return work.batch * work.context * arithmetic_s(speed_task_of(work), gpu, group.count) / group.reached
