"""What a row of a price list sells: the GPU, the number, the memory, whole cards or a fraction. Pure."""

from __future__ import annotations

import re
from functools import cache
from typing import Final, NamedTuple

from gpuwatch.domain.market.gpu_cards import gpu_fraction
from gpuwatch.domain.market.gpu_names import GpuName, catalog
from gpuwatch.domain.market.offer import clean
from gpuwatch.providers.pricelist.declaration import DeclaredMachine, PriceSource, paths
from gpuwatch.providers.pricelist.paths import Row, first_text, first_value, template_texts
from gpuwatch.providers.toolkit.post_processing import ParseResult, RowSkipped
from gpuwatch.providers.toolkit.validation import number, whole

GIB: Final = {"GiB": 1.0, "GB": 1.0, "MiB": 1 / 1024, "B": 1 / 1024**3}  # "GB" of a GPU's memory means GiB
_MIN_WHOLE_CARD: Final = 0.9  # less than this share of a card's memory is a fraction of the card
_MEMORY_TOLERANCE: Final = 0.1  # tolerance for the stated memory; ECC and drivers use a part
_MAX_GIB: Final = 5_000.0  # of all GPUs of a machine; more is implausible
_MEMORY_WITH_UNIT: Final = re.compile(r"\s*(\d{1,4}(?:\.\d+)?) ?G(?:iB|B|i)?\s*")
_ANY: Final = DeclaredMachine(match=".*")


class OtherProduct(Exception):
    """The row is about something else."""


class Product(NamedTuple):
    """What a row sells."""

    machine: str | None
    gpu_wire: str
    gpu: GpuName
    gpus: int
    fraction: float
    memory_gib: float | None
    note: str | None
    price_scale: float


def parse_product(source: PriceSource, row: Row, result: ParseResult) -> Product:
    """Parse what a row sells. Raises OtherGoods, RowSkipped."""
    name = first_text(row, paths(source.fields.machine))
    declared, name_count = _find_declaration(source, name)
    if declared is None:
        declared = _handle_undeclared(source, name, row, result)
    spellings, gpu_count = _gpu_spellings(source, row, declared)
    if not spellings:
        raise OtherProduct if source.mixed else RowSkipped("a row without a GPU's name")
    memory_gib = _memory_gib(source, row)
    count = _count(source, row, (name_count, gpu_count, declared.count))
    fraction = min((gpu_fraction(one) for one in [*spellings, *([name] if name else [])]), default=1.0)
    if source.memory_for == "machine" and memory_gib is not None:
        card_gib = declared.card_gib or _card_gib(spellings)
        if card_gib is None and count is None:
            raise RowSkipped("a GPU that nobody knows, and no number of them")
        if count is None and card_gib is not None:
            count, fraction = _count_cards(memory_gib, card_gib)
        memory_gib /= count or 1
    if count is None:
        raise RowSkipped("no number of GPUs")
    if fraction < 1 and count != 1:
        raise RowSkipped("several parts of GPUs")
    gpu = _resolve(spellings, declared.card_gib or (memory_gib if fraction == 1 else None))
    return Product(
        clean(declared.type or name or "", 60) or None,
        spellings[0],
        gpu,
        count,
        fraction,
        _sold_memory_gib(gpu, memory_gib, declared, fraction),
        declared.note,
        declared.price_scale,
    )


def _memory_gib(source: PriceSource, row: Row) -> float | None:
    """Return the stated memory, of one GPU or of all; also from a text with its unit, "80Gi"."""
    value = first_value(row, paths(source.fields.memory))
    if isinstance(value, str) and (match := _MEMORY_WITH_UNIT.fullmatch(value[:20])):
        memory_gib = float(match[1])
    else:
        memory_gib = (number(value, 0.0) or 0.0) * GIB[source.memory_unit]
    return memory_gib if 0 < memory_gib < _MAX_GIB else None


def _find_declaration(source: PriceSource, name: str | None) -> tuple[DeclaredMachine | None, int | None]:
    """Return the declaration of a machine, and the GPU count in its name."""
    for machine in source.machines if name else ():
        match = _compile(machine.match).fullmatch(name or "")
        if match:
            return machine, whole(match.groupdict().get("count"), 1, 1000)
    return None, None


def _handle_undeclared(source: PriceSource, name: str | None, row: Row, result: ParseResult) -> DeclaredMachine:
    """Handle a machine that no pattern matches: another product, or one to report to the owner."""
    count = whole(first_value(row, paths(source.fields.count)))
    is_suspect = bool(name and source.suspects and _compile(source.suspects).search(name))
    if source.fields.gpu and not is_suspect:
        return _ANY
    if is_suspect or (not source.fields.gpu and count):
        result.drift[f"{source.name}: a machine that is not declared: {clean(name or '', 60)}"] = None
        raise RowSkipped("a machine that is not declared")
    raise OtherProduct if source.mixed else RowSkipped("a machine that is not declared")


def _gpu_spellings(source: PriceSource, row: Row, declared: DeclaredMachine) -> tuple[list[str], int | None]:
    """Return spellings of the GPU, the longest first, and the GPU count in them."""
    if declared.gpu is not None:
        return [declared.gpu], None
    spellings = list(template_texts(row, paths(source.fields.gpu)))
    if source.gpu_pattern is None or not spellings:
        return spellings, None
    match = _compile(source.gpu_pattern).fullmatch(spellings[0])
    if match is None:
        return spellings, None
    groups = match.groupdict()
    return [groups.get("gpu") or spellings[0]], whole(groups.get("count"), 1, 1000)


def _count(source: PriceSource, row: Row, stated_counts: tuple[int | None, ...]) -> int | None:
    """Return the GPU count, if all fields agree. Raises OtherGoods, RowSkipped."""
    value = first_value(row, paths(source.fields.count))
    field_count = whole(value, 0, 1000)
    if value is not None and field_count is None:
        raise RowSkipped("no number of GPUs")
    counts = {one for one in (*stated_counts, field_count or None) if one is not None}
    if len(counts) > 1:
        raise RowSkipped("two different numbers of GPUs")
    if counts:
        return counts.pop()
    if source.fields.count and source.count is None:
        raise OtherProduct if source.mixed else RowSkipped("no number of GPUs")
    return source.count


def _count_cards(memory_gib: float, card_gib: float) -> tuple[int, float]:
    """Return the number of cards and the fraction of one, by the total memory. Raises RowSkipped: not a multiple."""
    ratio = memory_gib / card_gib
    if ratio < _MIN_WHOLE_CARD:
        return 1, ratio
    if not 0.9 <= ratio / max(round(ratio), 1) <= 1.1 or ratio > 1000:
        raise RowSkipped("memory that is no number of cards")  # word-check: allow - a value of the JSON
    return round(ratio), 1.0


def _resolve(spellings: list[str], memory_gib: float | None) -> GpuName:
    """Resolve the first spelling in the catalogue, preferably with this memory; else the first spelling."""
    names = [catalog().resolve(spelling, memory_gib) for spelling in spellings]
    known_names = [name for name in names if name.known]
    return next((name for name in known_names if _has_such_memory(name, memory_gib)), [*known_names, *names][0])


def _has_such_memory(name: GpuName, memory_gib: float | None) -> bool:
    card = catalog().get(name.name)
    return card is None or memory_gib is None or card.memory_distance(memory_gib) <= memory_gib * _MEMORY_TOLERANCE


def _card_gib(spellings: list[str]) -> float | None:
    card = catalog().get(_resolve(spellings, None).name)
    return card.memory_gib if card else None


def _sold_memory_gib(
    gpu: GpuName, stated_gib: float | None, declared: DeclaredMachine, fraction: float
) -> float | None:
    if fraction < 1:
        return stated_gib
    if stated_gib is not None:
        return catalog().sold_memory_gib(gpu.name, stated_gib)
    card = catalog().get(gpu.name)
    return declared.card_gib or (card.memory_gib if card else None)


@cache
def _compile(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern)
