"""The speed of a GPU by its data sheet: arithmetic, memory and the link between the GPUs, at their nominal rate. Pure.

- `card_specs_of`: the guaranteed figures of a GPU, even if its name does not identify the card.
- `roofline_tokens_s`: no real job reaches it. The measured speed divided by it is the share of the roofline, which
  `throughput` takes from published measurements (Williams et al., 2009; all-gather and reduce-scatter volumes:
  Rajbhandari et al., ZeRO, 2020).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from functools import cache
from typing import Final

import msgspec

from gpuwatch.domain.market.gpu_cards import GpuSpecs, gpu_specs
from gpuwatch.domain.market.gpu_names import catalog
from gpuwatch.domain.plan.figures import GpuAllocation

_BEFORE_BF16 = frozenset({"Kepler", "Maxwell", "Pascal", "Volta", "Turing"})  # supported since Ampere

_GB: Final = 1e9
_GIB_GB: Final = 2**30 / _GB
_MACHINE: Final = 8  # GPUs joined by NVLink
_RACK: Final = 72  # of a GB200 NVL72
# One direction, GB/s per GPU, by architecture: NVIDIA's data sheets of V100, A100, H100 and B200 (half of 300, 600, 900
# and 1,800), and PCI-SIG's x16 of generations 3, 4 and 5.
_NVLINK_GB_S: Final = {"Volta": 150.0, "Ampere": 300.0, "Hopper": 450.0, "Blackwell": 900.0, "Blackwell Ultra": 900.0}
_PCIE_GB_S: Final = {"Volta": 16.0, "Turing": 16.0, "Hopper": 64.0, "Blackwell": 64.0, "Blackwell Ultra": 64.0}
_PCIE_4_GB_S: Final = 32.0
_NETWORK_GB_S: Final = {"Ampere": 25.0}  # between machines: MosaicML's 1,600 Gbit/s of eight A100
_NETWORK_400G_GB_S: Final = 50.0  # 400 Gbit/s for each GPU, as in NVIDIA's DGX H100
_LEAST_OF_16_BITS: Final = 4  # the most that 16 bits gain over 32
_READS_PER_STEP: Final = 3  # of the weights in training: forward, recomputation of activations, backward


MIXED: Final = " + "  # between the names of cards of different kinds that share a job


class TrainingMethod(StrEnum):
    """What the model is used for."""

    FULL = "full"
    LORA = "lora"
    QLORA = "qlora"
    INFERENCE = "inference"


class Precision(StrEnum):
    """Number format of a weight."""

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


class WorkMethod(StrEnum):
    """The kind of work that a speed refers to."""

    FULL = "full"
    LORA = "lora"
    QLORA = "qlora"
    DECODE = "decode"
    PREFILL = "prefill"

    @property
    def trains(self) -> bool:
        """Is it training?"""
        return self not in {WorkMethod.DECODE, WorkMethod.PREFILL}


class SpeedTask(msgspec.Struct, frozen=True, kw_only=True):
    """Work whose speed in tokens a second is computed.

    Attributes:
        active_params: parameters used per token: fewer than `params` in a mixture of experts.
        weight_bytes: bytes of one parameter, as held in GPU memory.
        batch: concurrent sequences in memory over all GPUs.
        offload: CPU memory holds weights or gradients.
    """

    method: WorkMethod
    params: float
    active_params: float
    layers: int
    hidden: int
    kv_width: int
    weight_bytes: float
    fp8: bool = False
    fp32: bool = False
    batch: int = 1
    context: int = 4096
    offload: bool = False


@cache
def card_specs_of(name: str) -> GpuSpecs | None:
    """Guaranteed figures of a GPU; if the name does not identify the card ("H100"), the lowest. None: no data sheet.

    Also of cards that work together ("RTX 3090 + RTX 4090", the slowest first): each step waits for the slowest.
    """
    sheets = _sheets(name)
    if len(sheets) < 2:
        return sheets[0] if sheets else None
    is_mixed = MIXED in name  # no link joins cards of two kinds but PCIe
    return msgspec.structs.replace(
        sheets[0],
        name=sheets[0].name if is_mixed else name,
        memory_gib=min(sheet.memory_gib for sheet in sheets),
        fp16_tflops=_least([sheet.fp16_tflops for sheet in sheets]),
        fp8_tflops=_least([sheet.fp8_tflops for sheet in sheets]),
        bandwidth_gb_s=_least([sheet.bandwidth_gb_s for sheet in sheets]),
        power_w=_most([sheet.power_w for sheet in sheets]),
        nvlink=not is_mixed and all(sheet.nvlink for sheet in sheets),
        form_factor="PCIe" if is_mixed else sheets[0].form_factor,
        link_gb_s=_least([sheet.link_gb_s for sheet in sheets]),
        cuda_cores=_least([sheet.cuda_cores for sheet in sheets]),
        boost_mhz=_least([sheet.boost_mhz for sheet in sheets]),
        ecc=_common([sheet.ecc for sheet in sheets]),
        datacenter_card=_common([sheet.datacenter_card for sheet in sheets]),
    )


def joined_cards(text: str, kinds: Sequence[GpuAllocation]) -> tuple[GpuAllocation, tuple[str, ...]]:
    """Cards that work on one job, and the names of their kinds, the slowest first. Raises ValueError."""
    names = list(dict.fromkeys(kind.gpus[0] for kind in kinds))
    specs = [card_specs_of(name) for name in names]
    if None in specs:
        raise ValueError(f"{text!r}: no data sheet of one of these cards, so the slowest is unknown")
    if len({one.vendor for one in specs if one is not None}) > 1:
        raise ValueError(
            f"{text!r}: cards of several makers cannot share a job: NCCL joins NVIDIA's alone, RCCL AMD's alone"
        )
    names.sort(key=lambda name: peak_flops(name) or 0.0)
    count = sum(kind.count or 1 for kind in kinds)
    return GpuAllocation(text, (MIXED.join(names),), count), tuple(names)


def mixed_warning(text: str, count: int, slowest: str) -> str:
    """What cards of several kinds cost their owner."""
    return (
        f"{text}: mixed cards: every step waits for the slowest, so all {count} count as {slowest} "
        f"with the least memory of them, joined by PCIe; faster cards idle"
    )


def peak_flops(gpu: str, *, fp8: bool = False, fp32: bool = False) -> float | None:
    """Dense FLOP/s of the matrix units, in 16 bits unless said otherwise. None: not on the data sheet."""
    specs = card_specs_of(gpu)
    if specs is None:
        return None
    tflops = specs.fp8_tflops if fp8 else specs.fp32_tflops if fp32 else specs.fp16_tflops
    return tflops * 1e12 if tflops else None


def lacks_bf16(gpu: str) -> bool:
    """Does it certainly lack bf16? If the name does not identify the card: do all possible cards lack it?"""
    sheets = _sheets(gpu)
    return bool(sheets) and all(specs.architecture in _BEFORE_BF16 for specs in sheets)


def lacks_fp8(gpu: str) -> bool:
    """Does no data sheet of the possible cards list arithmetic in 8-bit floating point?"""
    sheets = _sheets(gpu)
    return bool(sheets) and all(specs.fp8_tflops is None for specs in sheets)


def _sheets(name: str) -> list[GpuSpecs]:
    known = gpu_specs()
    kinds = [(kind,) if kind in known else catalog().wanted(kind) for kind in name.split(MIXED)]
    return [known[one] for names in kinds for one in names if one in known]


def _least(figures: Sequence[float | None]) -> float | None:
    known = [figure for figure in figures if figure is not None]
    return min(known) if known and len(known) == len(figures) else None


def _most(figures: Sequence[float | None]) -> float | None:
    known = [figure for figure in figures if figure is not None]
    return max(known) if known and len(known) == len(figures) else None


def _common(answers: Sequence[bool | None]) -> bool | None:
    return answers[0] if len(set(answers)) == 1 else None


def has_fast_link(gpu: GpuSpecs, stated: bool | None = None) -> bool:
    """Does NVLink or an equivalent join all GPUs of a machine? A bridge between pairs does not count.

    Args:
        stated: as stated by the offer; None: not stated.
    """
    return (gpu.nvlink or gpu.form_factor == "OAM") if stated is None else stated


def _machine(gpu: GpuSpecs) -> int:
    return _RACK if gpu.form_factor == "superchip" else _MACHINE


def link_gb_s(gpu: GpuSpecs, count: int, *, nvlink: bool) -> float:
    """The one-way rate of the slowest link of a GPU among `count`; of its own data sheet where that states it."""
    if not nvlink:
        return _PCIE_GB_S.get(gpu.architecture, _PCIE_4_GB_S)
    if count > _machine(gpu):
        return _NETWORK_GB_S.get(gpu.architecture, _NETWORK_400G_GB_S)
    if gpu.link_gb_s is not None:
        return gpu.link_gb_s / 2
    return _NVLINK_GB_S.get(gpu.architecture, _NVLINK_GB_S["Ampere"])


def roofline_tokens_s(task: SpeedTask, gpu: GpuSpecs, count: int, *, nvlink: bool) -> float | None:
    """Tokens a second of all GPUs at their nominal rates; None: the data sheet is incomplete."""
    if not _peak_tflops(task, gpu) or not gpu.bandwidth_gb_s:
        return None
    compute_s = arithmetic_s(task, gpu, count)
    step_tokens = task.batch if task.method is WorkMethod.DECODE else task.batch * task.context
    memory_s = _read_gb(task, count) / gpu.bandwidth_gb_s / step_tokens
    link_s = 0.0
    if count > 1:
        link_s = _moved_gb(task, gpu, count) / link_gb_s(gpu, count, nvlink=nvlink) / step_tokens
    if task.offload:  # the weights are transferred over PCIe in every pass
        link_s += 2 * task.params * task.weight_bytes / _GB / count / link_gb_s(gpu, 1, nvlink=False) / step_tokens
    return 1 / max(compute_s, memory_s, link_s)


def arithmetic_s(task: SpeedTask, gpu: GpuSpecs, count: int) -> float:
    """Seconds of arithmetic for a token on all GPUs at their nominal rate; the data sheet states it."""
    return _flop_per_token(task) / ((_peak_tflops(task, gpu) or 1.0) * 1e12 * count)


def _peak_tflops(task: SpeedTask, gpu: GpuSpecs) -> float | None:
    """In the number format of the task; weights in fp8 are computed with in 16 bits where the card has no such units.

    Without TF32 a sheet lists an eighth for 32 bits, but those units are busier: 20 published pairs of BERT's training
    on V100 differ by 3.6 to 4.1 (NVIDIA DeepLearningExamples, PyTorch BERT, 20.06, pre-training).
    """
    if task.fp8:
        return gpu.fp8_tflops or gpu.fp16_tflops
    if task.fp32 and gpu.fp32_tflops and gpu.fp16_tflops:
        return max(gpu.fp32_tflops, gpu.fp16_tflops / _LEAST_OF_16_BITS)
    return gpu.fp32_tflops if task.fp32 else gpu.fp16_tflops


def _flop_per_token(task: SpeedTask) -> float:
    """Kaplan et al. (2020): 6 a weight to train, 4 if the weights stay fixed, 2 to read or write; causal attention."""
    passes = {WorkMethod.FULL: 3, WorkMethod.LORA: 2, WorkMethod.QLORA: 2}.get(task.method, 1)
    attention = task.layers * task.hidden * task.context
    return 2.0 * passes * (task.active_params + attention)


def _read_gb(task: SpeedTask, count: int) -> float:
    """GB that one GPU reads per step.

    In training, each GPU processes all weights, whichever GPU holds them; in inference, each reads its part of the
    weights and of the caches, which are half full on average.
    """
    weights = task.params * task.weight_bytes / _GB
    if task.method.trains:
        return _READS_PER_STEP * weights
    if task.method is WorkMethod.PREFILL:
        return weights / count
    experts = min(1.0, task.batch * task.active_params / task.params)
    cache_bytes = 1.0 if task.fp8 else _state_bytes(task)
    cache = 2.0 * task.layers * task.kv_width * cache_bytes * task.batch * task.context / 2 / _GB
    return (weights * experts + cache) / count


def _moved_gb(task: SpeedTask, gpu: GpuSpecs, count: int) -> float:
    """GB that a GPU sends per step.

    All weights: two gathers and a reduction of 2 bytes per parameter, 4 in 32 bits. Adapters: the fixed weights are
    gathered twice, unless each GPU holds all of them. Inference: two sums per layer of each token's state, each sent
    twice.
    """
    share = (count - 1) / count
    if task.method is WorkMethod.FULL:
        across = _machine(gpu) if count > _machine(gpu) else 1  # each GPU of a machine reduces its part across machines
        return (3 if across == 1 else 2) * share * _state_bytes(task) * task.params / _GB / across
    if task.method.trains:
        weights = task.params * task.weight_bytes / _GB
        return 0.0 if weights * 1.5 < gpu.memory_gib * _GIB_GB * 0.5 else 2 * share * weights
    tokens = task.batch if task.method is WorkMethod.DECODE else task.batch * task.context
    return 2 * 2 * share * task.layers * tokens * task.hidden * _state_bytes(task) / _GB


def _state_bytes(task: SpeedTask) -> float:
    """Bytes of a value that is computed with."""
    return 4.0 if task.fp32 else 2.0
