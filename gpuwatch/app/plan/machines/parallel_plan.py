"""How several cards share a model, and the files that start that plan."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from gpuwatch.app.plan.speed_table import throughput_table
from gpuwatch.atomic_file import atomic_file
from gpuwatch.domain.market.gpu_names import catalog
from gpuwatch.domain.market.links import machine_network
from gpuwatch.domain.plan.figures import GpuAllocation, parse_gpu_config
from gpuwatch.domain.plan.memory_need import GIB_GB
from gpuwatch.domain.plan.parallelism.card_layout import SIMILAR, CardGroup, Layout, layouts
from gpuwatch.domain.plan.parallelism.launch_files import launch_files
from gpuwatch.domain.plan.roofline import (
    Precision,
    card_specs_of,
    has_fast_link,
    joined_cards,
    lacks_bf16,
    mixed_warning,
)
from gpuwatch.domain.plan.throughput import speed_task_of
from gpuwatch.errors import UsageError

if TYPE_CHECKING:
    from gpuwatch.domain.plan.parallelism.parallel_request import ParallelRequest
    from gpuwatch.domain.plan.workload import Workload

PARALLEL_OPTIONS: Final = {
    "--size-of": "model", "--method": "method", "--precision": "precision", "--optimizer": "optimizer",
    "--batch": "batch", "--context": "context", "--machine": "machine", "--network": "network_gbps",
}  # fmt: skip
OTHERS: Final = 4  # layouts shown besides the best one
PARALLEL_METHOD_TEXT: Final = (
    "all-reduce: 2(n-1)/n of the bytes (Patarasuk and Yuan, 2009); ZeRO: Rajbhandari et al. (2020); tensor: Megatron-LM"
    " (2019); pipeline: Narayanan et al. (2021); links: NVIDIA's data sheets and PCI-SIG, one way, at their"
    " nominal rate, which no collective reaches; arithmetic and reading at the share of the nominal rate that published"
    " work of the kind reaches; nothing overlaps, though it does in reality: layouts are compared, not times promised"
)


class ParallelPlan(msgspec.Struct, frozen=True, kw_only=True):
    """The layouts, best first, and why."""

    work: Workload
    group: CardGroup
    layouts: Sequence[Layout]
    reasons: Sequence[str]
    files: Mapping[str, str]

    @property
    def best(self) -> Layout | None:
        """None: the cards do not hold the model in any way."""
        return self.layouts[0] if self.layouts[0].fits else None


def plan_parallel(request: ParallelRequest) -> ParallelPlan:
    """Choose how the cards share the model. Raises UsageError."""
    work = request.workload()
    if work is None:
        raise UsageError("the model is missing: use --size-of 70B, a model's name, or its config.json")
    if len(request.candidates) != 1:
        raise UsageError('expected one group of cards, such as "16x H100 SXM"')
    try:
        group = _group(request, work)
        if "batch" not in request.model_fields_set:
            work = work.model_copy(update={"batch": group.count})
        found = layouts(work, group)
    except ValueError as fault:
        raise UsageError(str(fault)) from fault
    best = found[0] if found[0].fits else None
    return ParallelPlan(
        work=work,
        group=group,
        layouts=found,
        reasons=[] if best is None else _reasons(work, group, best, found),
        files={} if best is None else launch_files(work, group, best),
    )


def _group(request: ParallelRequest, work: Workload) -> CardGroup:
    """The cards of a request. Raises ValueError."""
    cards, warning = _cards(request.candidates[0])
    name = cards.gpus[0] if len(cards.gpus) == 1 else cards.text.lstrip("0123456789x× ")
    specs = card_specs_of(name)
    if specs is None:
        raise ValueError(f"no data sheet of {cards.text}")
    if work.precision is Precision.BF16 and lacks_bf16(name):
        raise ValueError(f"{specs.name} has no bf16: add --precision fp16")
    count = cards.count or 1
    per_machine = min(request.per_machine, count)
    if count % per_machine:
        raise ValueError(f"{count} cards are not whole machines of {per_machine}: set per_machine")
    machines = count // per_machine
    gbps, source = _network(request, machines, cards.gpus)
    reached = throughput_table().shares(speed_task_of(work).method)
    return CardGroup(
        gpu=specs,
        machines=machines,
        per_machine=per_machine,
        network_gbps=gbps,
        network_source=source,
        reached=(reached.low * reached.high) ** 0.5,
        warning=warning,
    )


def _cards(text: str) -> tuple[GpuAllocation, str | None]:
    """The cards of a candidate, and what they cost if they are of several kinds. Raises ValueError."""
    kinds = [parse_gpu_config(kind) for kind in text.split("+")]
    if len(kinds) == 1:
        return kinds[0], None
    cards, names = joined_cards(text.strip(), kinds)
    return cards, mixed_warning(cards.text, cards.count or 1, names[0]) if len(names) > 1 else None


def _network(request: ParallelRequest, machines: int, gpus: Sequence[str]) -> tuple[float | None, str]:
    if request.machine is not None and request.network_gbps is not None:
        raise ValueError("use either --machine or --network")
    if request.machine is not None:
        known = machine_network(request.machine)
        if known is None:
            raise ValueError(f"--machine {request.machine}: its network rate is unknown; state it with --network")
        own = catalog().wanted(request.machine)
        if own and not set(own) & set(gpus):
            raise ValueError(f"--machine {request.machine} has {own[0]}, not {gpus[0]}")
        return known if machines > 1 else (None, "")
    if machines == 1:
        return None, ""
    if request.network_gbps:
        return request.network_gbps, "as you state it"
    raise ValueError(f"{machines} machines: add --machine TYPE, such as p5.48xlarge, or --network in Gbit/s")


def _reasons(work: Workload, group: CardGroup, best: Layout, found: Sequence[Layout]) -> list[str]:
    """Why this layout, one plain sentence each."""
    lines = list(_links(group))
    if best.model == 1:
        lines.append(f"each card holds {best.gb:.1f} GB of {group.gpu.memory_gib * GIB_GB:.1f} GB")
    if best.tensor > 1:
        lines.append(f"tensor parallelism of {best.tensor} stays within a machine: {best.tensor_gb:.2f} GB a step")
    if best.pipeline > 1:
        idle = f", and a bubble of {best.bubble:.0%}" if work.trains else ""
        lines.append(f"pipeline of {best.pipeline} stages: {best.pipeline_gb:.3f} GB a step{idle}")
    if best.data > 1 and work.trains:
        lines.append(
            f"data parallelism of {best.data}: {_summed(best)}: {best.data_gb:.2f} GB a step, {best.data_s:.2f} s"
        )
    if best.passes > 1:
        at_once = "one sequence" if best.micro == 1 else f"{best.micro} sequences"
        lines.append(f"a step takes {best.passes} passes of {at_once} in each replica")
    shortest = min((one for one in found if one.fits), key=lambda one: one.step_s, default=best)
    if best.fits and shortest.step_s < best.step_s:
        lines.append(f"{shortest.text} is shorter by less than {100 * (SIMILAR - 1):.0f} %: the simpler layout counts")
    if best.zero:
        without = next(
            (one for one in found if (one.tensor, one.pipeline, one.zero) == (best.tensor, best.pipeline, 0)), None
        )
        if without is not None and not without.fits:
            lines.append(f"ZeRO {best.zero}: without it a card would need {without.gb:.1f} GB")
    if work.model.shape.experts > 1:
        lines.append("experts are shared as other weights; expert parallelism is not computed")
    return lines


def _links(group: CardGroup) -> Iterator[str]:
    if group.per_machine > 1:
        link = "NVLink or the like" if has_fast_link(group.gpu) else "PCIe"
        if link != "PCIe" and group.gpu.link_gb_s is None:
            link = f"assumed: no data sheet states the link of {group.gpu.name}"
        yield f"within a machine: {group.inside_gb_s:g} GB/s one way for each card ({link})"
    if group.network_gbps is not None:
        each = group.between_gb_s / group.per_machine
        rate = f"{group.network_gbps:,g} Gbit/s, {each:.3g} GB/s for each card"
        yield f"between machines: {rate} ({group.network_source})"


def _summed(one: Layout) -> str:
    """What data parallelism sends."""
    share = f"({one.data}-1)/{one.data}"
    if one.zero == 0:
        return f"2{share} of the gradients"
    each = f" in each of {one.passes} passes" if one.passes > 1 else ""
    if one.zero == 3:
        return f"{share} of the gradients and twice of the weights{each}"
    return f"{share} of the gradients{each if one.zero == 2 else ''} and of the new weights"


def write_files(plan: ParallelPlan, folder: Path) -> list[Path]:
    """Write the plan's files; none is overwritten. Raises UsageError."""
    paths = [folder / name for name in plan.files]
    if taken := [path for path in paths if path.exists()]:
        raise UsageError(f"{taken[0]} exists: name another folder, or remove it")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for path, text in zip(paths, plan.files.values(), strict=True):
            with atomic_file(path) as part:
                part.write_text(text, encoding="utf-8")
                part.chmod(0o755 if path.suffix == ".sh" else 0o644)
    except OSError as error:
        raise UsageError(f"cannot write {error.filename}: {error.strerror}") from error
    return paths


# --- JSON -------------------------------------------------------------------------------------------------------------


def plan_parallel_json(plan: ParallelPlan) -> dict[str, Any]:
    """JSON of `gpuwatch plan parallel`."""
    group = plan.group
    return {
        "method": PARALLEL_METHOD_TEXT,
        "model": plan.work.model.name,
        "gpu": group.gpu.name,
        "machines": group.machines,
        "per_machine": group.per_machine,
        "batch": plan.work.batch,
        "inside_gb_s": group.inside_gb_s,
        "network_gbps": group.network_gbps,
        "network_source": group.network_source or None,
        "warning": group.warning,
        "fits": plan.best is not None,
        "reasons": list(plan.reasons),
        "layouts": [_layout_json(one) for one in plan.layouts],
        "files": dict(plan.files),
    }


def _layout_json(one: Layout) -> dict[str, Any]:
    return {name: getattr(one, name) for name in one.__struct_fields__} | {"step_s": one.step_s}
