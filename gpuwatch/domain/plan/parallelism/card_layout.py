"""How several cards share one model: tensor, pipeline and data parallelism, chosen by memory and traffic. Pure.

Volumes, in bytes that a GPU sends for a step:

- data parallelism: a ring all-reduce of the gradients, 2(n−1)/n × their bytes (Patarasuk and Yuan, 2009; NCCL's "bus
  bandwidth"). ZeRO 1 and 2 move the same; ZeRO 3 (FSDP) gathers the weights twice, as well: 1.5 times as much in all
  (Rajbhandari et al., 2020, section 7).
- tensor parallelism: two all-reduces of each layer's activations in the forward and two in the backward pass (Shoeybi
  et al., Megatron-LM, 2019), two more if activations are recomputed.
- pipeline parallelism: activations and their gradients over each boundary; (p−1)/m of the time nothing is computed, for
  m micro-batches (Narayanan et al., 2021, section 2.2, without interleaving).

Tensor parallelism stays within a machine (Narayanan et al., takeaway 1). Traffic is not overlapped with computation
here: an upper bound, the same for all layouts that are compared. A step of inference is a token of each sequence.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from gpuwatch.domain.market.gpu_cards import GpuSpecs
from gpuwatch.domain.plan.memory_need import OVERHEAD_GB, gb_read_per_step, memory_need, usable_gb
from gpuwatch.domain.plan.roofline import Precision, TrainingMethod, has_fast_link, link_gb_s

if TYPE_CHECKING:
    from gpuwatch.domain.plan.workload import Workload

_GB: Final = 1e9
SIMILAR: Final = 1.02  # times this close count as equal: then the simpler layout
_SHARDED_FROM: Final = {"optimizer": 1, "master copy": 1, "gradients": 2, "weights": 3}  # the ZeRO stage
_OF_TOKENS: Final = ("activations", "logits", "input", "KV cache")


class CardGroup(msgspec.Struct, frozen=True, kw_only=True):
    """The cards, and the links between them.

    Attributes:
        network_gbps: of a machine to the others, Gbit/s; None: there is one machine.
        network_source: who states it.
        reached: share of the nominal 16-bit rate that published trainings reach.
    """

    gpu: GpuSpecs
    machines: int
    per_machine: int
    network_gbps: float | None
    network_source: str
    reached: float

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
    def step_s(self) -> float:
        """Seconds of a step: an upper bound, as nothing overlaps."""
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
        ValueError: the batch has fewer sequences than any layout needs, or the data sheet lacks a figure.
    """
    if not group.gpu.fp16_tflops or not group.gpu.bandwidth_gb_s:
        raise ValueError(f"the data sheet of {group.gpu.name} lacks its 16-bit rate or its memory bandwidth")
    found = [
        _layout(work, group, tensor, pipeline, zero)
        for tensor, pipeline in _splits(work, group)
        for zero in _stages(work, tensor * pipeline, group.count // (tensor * pipeline))
    ]
    if not found:
        raise ValueError(
            f"no layout: {group.count} cards need a batch of that many sequences, or heads and layers that divide"
        )
    fitting = [one for one in found if one.fits]
    least = min((one.step_s for one in fitting), default=0.0)
    return sorted(found, key=lambda one: _rank(one, least))


def _rank(one: Layout, least_s: float) -> tuple[bool, bool, int, int, float]:
    is_slower = one.step_s > least_s * SIMILAR
    if not one.fits:
        return True, False, 0, 0, one.gb
    if is_slower:
        return False, True, 0, 0, one.step_s
    return False, False, one.tensor * one.pipeline, one.zero, one.step_s


def _splits(work: Workload, group: CardGroup) -> Iterator[tuple[int, int]]:
    shape = work.model.shape
    for tensor in _divisors(group.per_machine):
        if shape.heads % tensor:
            continue
        for pipeline in _divisors(group.count // tensor):
            data = group.count // tensor // pipeline
            if pipeline <= shape.layers and shape.layers % pipeline == 0 and data <= work.batch:
                yield tensor, pipeline


def _divisors(number: int) -> list[int]:
    return [one for one in range(1, number + 1) if number % one == 0]


def _stages(work: Workload, model: int, data: int) -> Sequence[int]:
    """ZeRO stages; with tensor or pipeline parallelism Megatron-LM shards the optimizer alone."""
    if not work.trains or data == 1:
        return (0,)
    return (0, 1, 2, 3) if model == 1 else (0, 1)


def _layout(work: Workload, group: CardGroup, tensor: int, pipeline: int, zero: int) -> Layout:
    data = group.count // (tensor * pipeline)
    gb = OVERHEAD_GB + sum(
        part.gb / _parts_of(part.name, tensor * pipeline, data, zero) for part in memory_need(work).parts
    )
    fits = gb - OVERHEAD_GB <= usable_gb(group.gpu.memory_gib) + 1e-9
    found = Layout(tensor=tensor, pipeline=pipeline, data=data, zero=zero, gb=gb, fits=fits)
    return _with_times(found, work, group)


def _parts_of(name: str, model: int, data: int, zero: int) -> int:
    """Over how many cards a part of the memory is divided."""
    if name in _OF_TOKENS:
        return model * data
    return model * (data if name in _SHARDED_FROM and zero >= _SHARDED_FROM[name] else 1)


def _with_times(one: Layout, work: Workload, group: CardGroup) -> Layout:
    shape, width = work.model.shape, 4.0 if work.precision is Precision.FP32 else 2.0
    sequences = work.batch / one.data
    tokens = sequences * (work.context if work.trains else 1)  # of a replica in a step
    state_gb = tokens * shape.hidden * width / _GB  # of one layer
    passes = (6 if work.recompute else 4) if work.trains else 2
    tensor_gb = passes * shape.layers / one.pipeline * _ring(one.tensor) * state_gb
    pipeline_gb = (2 if work.trains else 1) * state_gb / one.tensor if one.pipeline > 1 else 0.0
    data_gb, data_s = _data_traffic(one, work, group)
    crosses = group.machines > 1 and one.pipeline > 1
    pipeline_link = group.between_gb_s / group.per_machine if crosses else group.inside_gb_s
    return msgspec.structs.replace(
        one,
        compute_s=_compute_s(one, work, group),
        bubble=(one.pipeline - 1) / max(sequences, 1.0) if work.trains else 0.0,
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


def _data_traffic(one: Layout, work: Workload, group: CardGroup) -> tuple[float, float]:
    """GB that a card sends for the gradients, and for weights with ZeRO 3; and the seconds for that."""
    if not work.trains or one.data == 1:
        return 0.0, 0.0
    sizes = {part.name: part.gb / (one.tensor * one.pipeline) for part in memory_need(work).parts}
    reduced = sizes.get("gradients", 0.0)
    gathered = sizes["weights"] if one.zero == 3 else 0.0
    # ZeRO 3: one reduce-scatter of the gradients and two gathers of the weights, each half of an all-reduce
    moved = reduced / 2 + gathered if one.zero == 3 else reduced
    inside = min(one.data, max(1, group.per_machine // one.tensor))
    across = one.data // inside
    groups = max(1, group.per_machine // inside)  # that share the machine's network
    seconds = _ring(inside) * moved / group.inside_gb_s
    if across > 1:
        seconds += groups * _ring(across) * moved / group.between_gb_s
    return _ring(one.data) * moved, seconds


def _compute_s(one: Layout, work: Workload, group: CardGroup) -> float:
    """Training: Kaplan et al. (2020), 6 operations a weight and token, 4 with fixed weights.

    Inference: a token of every sequence takes the time to read weights and caches, stage after stage.
    """
    gpu = group.gpu
    if not work.trains:
        replica = work.model_copy(update={"batch": max(1, work.batch // one.data)})
        return gb_read_per_step(replica) / one.tensor / (gpu.bandwidth_gb_s or 1.0)
    each = 6.0 if work.method is TrainingMethod.FULL else 4.0
    tflops = gpu.fp32_tflops if work.precision is Precision.FP32 else gpu.fp16_tflops
    flops = (tflops or 1.0) * 1e12 * group.reached * group.count
    return each * work.model.active_params * work.batch * work.context / flops
