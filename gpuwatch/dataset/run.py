"""`gpuwatch plan dataset`: audit a file, write the rows that stay, and compute what training on less data saves."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from gpuwatch.app.history.past_prices import gpu_names_of
from gpuwatch.dataset.audit import Audit, AuditModels, AuditPlan, RemovalRules, audit_in_stages
from gpuwatch.dataset.audit_report import audit_page, report_of, tokens_of
from gpuwatch.dataset.embedding import open_embedder
from gpuwatch.dataset.filtering import check_target, write_kept
from gpuwatch.dataset.formats.row_files import check_ending
from gpuwatch.dataset.onnx_models import TokenCounter, find_model
from gpuwatch.dataset.perplexity import CausalModel
from gpuwatch.dataset.preparation.chain import (
    COLUMNS,
    ChainSetting,
    preparation_json,
    preparation_of,
    report_lines,
    step_cells,
)
from gpuwatch.dataset.preparation.cpu_machine import CpuMachine, articles_machine, cheapest_machine, stated_machine
from gpuwatch.dataset.saving import TrainingPrice, TrainingSaving, TrainingWork, cheapest_price, training_saving
from gpuwatch.dataset.scan import AuditProgress, detect_fields
from gpuwatch.dataset.work_folder import open_work_folder
from gpuwatch.errors import SettingsError, StoreError, UsageError

if TYPE_CHECKING:
    from gpuwatch.settings import Settings


DEFAULT_SAMPLE = 10_000  # rows: the error of a share is at most one percentage point (95 %)


class AuditRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A file, the rules for removing rows, and the cost of training; the options of `gpuwatch plan dataset audit`."""

    file: Path
    field: tuple[str, ...]  # empty: detected
    near: float | None  # cosine
    per_cluster: int | None
    clusters: int
    seed: int
    model: Path | None
    backend: str
    perplexity_model: Path | None
    max_perplexity: float | None
    min_perplexity: float | None
    tokenizer: Path | None
    threads: int | None
    sample: int | None  # rows that the model reads; 0: all; None: the default
    work: Path | None  # folder of intermediate results
    anew: bool
    gpu: str | None
    poll: bool
    price: float | None  # USD per GPU-hour
    gpu_hours: float | None
    tokens_per_s: float | None
    params: float | None
    lora: bool
    utilisation: float
    epochs: float
    whole_gb: float | None  # of the set that the file is a part of
    cpu_price: float | None  # USD per hour of a machine without GPUs
    cpu_processors: float | None

    @property
    def folder(self) -> Path:
        """Where intermediate results and the report are kept."""
        return self.work or self.file.with_name(f"{self.file.name}.audit")


class FilterTarget(msgspec.Struct, frozen=True, kw_only=True):
    """Where to write the rows, and what may be replaced."""

    out: Path
    removed: Path | None
    drop_unread: bool
    force: bool

    def check(self, source: Path) -> None:
        """Check the targets. Raises UsageError: a target cannot be written."""
        for target in (self.out, self.removed) if self.removed else (self.out,):
            check_target(source, target, force=self.force)
            check_ending(source, target)


def training_price(request: AuditRequest, settings: Callable[[], Settings]) -> tuple[TrainingPrice | None, str | None]:
    """The price as requested, else of the cheapest offer now; and why there is none, if one was requested.

    Args:
        settings: loads the settings, if the price comes from an offer.

    Raises:
        UsageError: the request is contradictory, or no GPU has this name.
    """
    if request.params is not None and request.gpu is None:
        raise UsageError("--params requires a GPU, such as --gpu H100.")
    if request.poll and request.gpu is None:
        raise UsageError("--poll requires a GPU, such as --gpu H100.")
    name = gpu_names_of(request.gpu)[0] if request.gpu else None
    if request.price is not None:
        return TrainingPrice(usd_gpu_hour=request.price, source="as said", gpu=name), None
    if request.gpu is None:
        return None, None
    try:
        price = cheapest_price(settings(), request.gpu, poll=request.poll)
    except StoreError as fault:
        return None, f"no price from the store: {fault}"
    if price is not None:
        return price, None
    if request.poll:
        return None, f"no price of {request.gpu}: no provider offers it; pass --price"
    missing = "the store has no offer of the last three hours"
    return None, f"no price of {request.gpu}: {missing}; pass --price, or --poll"


def preparing_machine(request: AuditRequest, settings: Callable[[], Settings]) -> CpuMachine:
    """The machine without GPUs: at the stated price, the cheapest one now, or at the articles' prices.

    Raises:
        UsageError: no provider can be polled.
    """
    if request.cpu_price is not None:
        return stated_machine(request.cpu_price)
    try:
        return cheapest_machine(settings(), poll=request.poll)
    except StoreError:
        return articles_machine("there is no store")
    except SettingsError:
        if request.poll:
            raise
        return articles_machine("the settings cannot be read")


class FinishedAudit(msgspec.Struct, frozen=True, kw_only=True):
    """The findings for a file, while its folder is locked."""

    audit: Audit
    report: dict[str, Any]
    folder: Path

    def write(self, target: FilterTarget) -> None:
        """Write the rows that stay. Raises UsageError or GpuwatchError: it is impossible."""
        copy = write_kept(self.audit, target.out, target.removed, drop_unread=target.drop_unread, force=target.force)
        written = {"file": str(target.out), "rows": copy.rows, "bytes": copy.bytes, "unread_lines": copy.unread}
        self.report["written"] = written
        self.save()

    def save(self) -> None:
        """Write the report to the folder, as JSON and as a page."""
        json = msgspec.json.format(msgspec.json.encode(self.report), indent=2)
        (self.folder / "report.json").write_bytes(json + b"\n")
        (self.folder / "report.html").write_text(
            audit_page(self.report, report_lines(self.report), [COLUMNS, *step_cells(self.report["preparation"])]),
            encoding="utf-8",
        )


@contextmanager
def audited(
    request: AuditRequest, price: TrainingPrice | None, machine: CpuMachine, progress: AuditProgress
) -> Iterator[FinishedAudit]:
    """Audit a file; its folder is locked until the end of the context.

    Raises:
        NoUsableRows: the file contains nothing that can be judged.
        UsageError: the request is contradictory, or a file or a model cannot be used.
    """
    if not request.file.is_file():
        raise UsageError(f"{request.file} cannot be read twice; use a regular file")
    reading = detect_fields(request.file, request.field)
    with open_work_folder(request.folder, start_over=request.anew) as folder:
        plan = AuditPlan(
            reading=reading,
            rules=_rules(request),
            models=_models(request),
            sample=_sample(request),
            threads=request.threads or _processors(),
        )
        audit = audit_in_stages(request.file, plan, folder, progress)
        prepared = preparation_of(
            audit,
            ChainSetting(
                machine=machine,
                processors=request.cpu_processors,
                processors_here=plan.threads,
                whole_bytes=None if request.whole_gb is None else request.whole_gb * 1e9,
                gpu_usd_hour=None if price is None else price.usd_gpu_hour,
            ),
        )
        report = report_of(audit, _saving(request, audit, price, prepared.scale))
        report["preparation"] = preparation_json(prepared)
        finished = FinishedAudit(audit=audit, report=report, folder=request.folder)
        finished.save()
        yield finished


def _rules(request: AuditRequest) -> RemovalRules:
    min_perplexity, max_perplexity = request.min_perplexity, request.max_perplexity
    if (min_perplexity or max_perplexity) and request.perplexity_model is None:
        raise UsageError("a perplexity limit requires --perplexity-model.")
    if min_perplexity and max_perplexity and min_perplexity > max_perplexity:
        raise UsageError("--min-perplexity is above --max-perplexity.")
    return RemovalRules(
        near=request.near,
        least_perplexity=min_perplexity,
        most_perplexity=max_perplexity,
        per_cluster=request.per_cluster,
        clusters=request.clusters,
        seed=request.seed,
    )


def _sample(request: AuditRequest) -> int | None:
    """The number of rows that the model reads; None: all, because some rules judge each row."""
    every = request.per_cluster is not None or request.perplexity_model is not None
    if every and request.sample:
        raise UsageError("--per-cluster and --perplexity-model read every row: omit --sample.")
    if every or request.sample == 0:
        return None
    return request.sample or DEFAULT_SAMPLE


def _models(request: AuditRequest) -> AuditModels:
    threads = request.threads or _processors()
    tokenizer = request.tokenizer or find_model(request.model).tokenizer
    return AuditModels(
        embedder=open_embedder(request.model, request.backend, threads),
        counter=TokenCounter(tokenizer, estimate=request.tokenizer is None),
        causal=None if request.perplexity_model is None else CausalModel(request.perplexity_model, threads),
    )


def _processors() -> int:
    """The processors that this process may use, if the system reports it."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _saving(request: AuditRequest, audit: Audit, price: TrainingPrice | None, scale: float) -> TrainingSaving:
    """Of the whole set, if the file is a part of it."""
    gpu = price.gpu if price else None
    if gpu is None and request.gpu:
        gpu = gpu_names_of(request.gpu)[0]
    work = TrainingWork(**{name: getattr(request, name) for name in TrainingWork.__struct_fields__})
    tokens, removed = tokens_of(audit)
    return training_saving(round(tokens * scale), round(removed * scale), work, gpu, price)
