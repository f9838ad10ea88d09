"""GPU names: from any provider's spelling to one canonical name, and from an owner's text to names. Pure.

The catalog is `gpu-catalog.csv` beside this file. A name is looked up as spelled, then by its letters and digits only,
then by its parts. The memory and the socket of a GPU distinguish cards that share a spelling. If they are not enough,
nothing is guessed: the offer gets the common name of the cards ("H100", "V100 16GB").
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from csv import DictReader
from functools import cache
from typing import Final

import msgspec

from gpuwatch.domain.market.gpu_cards import WHOLE, gpu_fraction
from gpuwatch.domain.market.offer import NO_GPU
from gpuwatch.domain.market.spellings import (
    MAX_NAME_LENGTH,
    Reading,
    clean_name,
    common_name,
    fold,
    is_number,
    letters_of,
    plain_name,
    readings,
    socket_of,
    unlisted_names,
    without_size,
)

__all__ = ["MAX_NAME_LENGTH", "NO_GPU_NAME", "CatalogGpu", "GpuCatalog", "GpuName", "catalog", "clean_name", "fold"]

_REMEMBERED_MAX = 5_000  # spellings; hostile answers must not fill the memory
_OWN_SIZE = 0.10  # reported memory within 10 % of the label is that card (ECC takes up to 9 %)
_REPORT_SLACK = 0.97  # a driver may report 3 % less than the lowest value in the catalog
_SAME_SIZE = (0.9, 1.25)  # "H100 80GB" also means the 94 GB sister card, "A100 40GB" never the 80 GB one
_SERIES = ("rtx", "gtx", "rx")  # series that a bare number may belong to
_REFUSED: Final[Mapping[str, str]] = {
    "unknown": "the provider's own placeholder",
    "cpunode": "a machine without a GPU",
    "a5000ada": "RTX A5000 and RTX 5000 Ada are two cards, and this is the name of neither",
}

_SOCKETS: Final[Mapping[str, Callable[[CatalogGpu], bool]]] = {
    "sxm": lambda gpu: gpu.form_factor.startswith("SXM") or gpu.form_factor == "superchip",
    "pcie": lambda gpu: gpu.form_factor == "PCIe" and not gpu.name.endswith("NVL"),
    "nvl": lambda gpu: gpu.name.endswith("NVL"),
    "oam": lambda gpu: gpu.form_factor == "OAM",
}
_BROADER: Final[Mapping[str, Callable[[CatalogGpu], bool]]] = {
    "pcie": lambda gpu: gpu.form_factor == "PCIe"
}  # an NVL card is a PCIe card


class GpuName(msgspec.Struct, frozen=True):
    """The meaning of a spelling. `known` False: not in the catalog, and `name` is the spelling without decoration.

    `certain` False: it may be any of `candidates`, and `name` is their common name ("H100"), which matches a watch on
    the family but not one on a single card. `reason` explains why it is unknown or uncertain.
    """

    name: str
    family: str
    known: bool
    certain: bool = True
    candidates: tuple[str, ...] = ()
    reason: str | None = None


NO_GPU_NAME: Final = GpuName(NO_GPU, NO_GPU, known=True)  # of a machine without GPUs


class CatalogGpu(msgspec.Struct, frozen=True, kw_only=True):
    """One row of the catalog. Memory of one GPU: as sold, and the range that providers report.

    `members`: the names of the rows that an entry for a common name stands for.
    """

    name: str
    family: str
    vendor: str
    memory_gib: float
    reported_min_gib: float
    reported_max_gib: float
    spellings: tuple[str, ...]
    architecture: str = ""
    form_factor: str = ""
    members: tuple[str, ...] = ()

    def memory_distance(self, memory_gib: float) -> float:
        """Return how far a reported memory lies outside this GPU's range; 0: inside."""
        return max(self.reported_min_gib - memory_gib, memory_gib - self.reported_max_gib, 0.0)


class GpuCatalog:
    """All GPUs that are known by name."""

    def __init__(self, gpus: Iterable[CatalogGpu]) -> None:
        self._by_name = {gpu.name: gpu for gpu in gpus}
        self._exact: dict[str, list[CatalogGpu]] = {}
        self._by_key: dict[str, list[CatalogGpu]] = {}
        self._families: dict[str, list[CatalogGpu]] = {}
        self._canonical: dict[str, CatalogGpu] = {}
        for gpu in self._by_name.values():
            self._families.setdefault(fold(gpu.family), []).append(gpu)
            self._canonical[fold(gpu.name)] = gpu
            for spelling in dict.fromkeys(map(str.casefold, gpu.spellings)):
                self._exact.setdefault(spelling, []).append(gpu)
            for key in dict.fromkeys(map(fold, gpu.spellings)):
                self._by_key.setdefault(key, []).append(gpu)
        self._unclear = _unclear(self._by_key, self._by_name)
        self._series = letters_of([*self._canonical, *self._families])
        self._remembered: dict[tuple[str, int | None, str | None], GpuName] = {}

    def resolve(self, spelling: str, memory_gib: float | None = None, socket: str | None = None) -> GpuName:
        """Return the GPU with a provider's spelling.

        Args:
            memory_gib: of one GPU, as reported; distinguishes variants of one spelling. None or impossible: ignored.
            socket: as the provider states it beside the name ("SXM5", "PCIe"); distinguishes variants, too.
        """
        bucket = round(memory_gib * 2) if memory_gib is not None and 0 < memory_gib < 100_000 else None
        found = self._remembered.get((spelling, bucket, socket))
        if found is None:
            memory_gib = None if bucket is None else bucket / 2
            found = self._resolve(clean_name(spelling), memory_gib, socket_of(socket))
            if len(self._remembered) >= _REMEMBERED_MAX:
                self._remembered.clear()
            if len(spelling) <= MAX_NAME_LENGTH and len(socket or "") <= MAX_NAME_LENGTH:
                self._remembered[spelling, bucket, socket] = found
        return found

    def wanted(self, text: str) -> tuple[str, ...]:
        """Return the canonical names for an owner's text; empty: it is unknown.

        A family means all its members, unless it is also the name of one GPU ("RTX 4090"): then it means that GPU and
        the variants that providers spell the same. A size restricts it: "A100 80GB". Common names of these cards
        are included: "H100 80GB" accepts an H100 whose socket is unknown, "H100 SXM" does not.
        """
        text = clean_name(text)
        found = self._named(text) or self._sized(text) or self._spelled(text) or self._parsed(text)
        names = tuple(gpu.name for gpu in found)
        return names + tuple(gpu.name for gpu in self._unclear.values() if names and set(gpu.members) <= set(names))

    def unlisted(self, text: str) -> tuple[str, ...]:
        """Return the names of a card that the catalogue lacks, for an owner's text: "H800", "H800 SXM", "H800 PCIe".

        Empty: it is catalogued, no name of a card, a part of one, or a slip of a catalogued name.
        """
        text = clean_name(text)
        if self.wanted(text) or gpu_fraction(text) < WHOLE or fold(text) in _REFUSED:
            return ()
        return unlisted_names(text, self._series, self._by_key)

    def suggest(self, text: str) -> tuple[str, ...]:
        """Return the closest names, best first, at most three."""
        from difflib import get_close_matches  # noqa: PLC0415 only needed for an error

        shown = {key: gpu.name for key, gpus in self._by_key.items() for gpu in gpus[:1]}
        shown |= {key: gpus[0].family for key, gpus in self._families.items()}
        shown |= {key: gpu.name for key, gpu in self._canonical.items()}
        near = get_close_matches(fold(clean_name(text)), shown, n=12, cutoff=0.6)
        return tuple(dict.fromkeys(shown[key] for key in near))[:3]

    def spellings(self, canonical: str) -> tuple[str, ...]:
        """Return every spelling of a GPU, its canonical name first; an unknown name is its own only spelling."""
        gpu = self.get(canonical)
        return gpu.spellings if gpu else (canonical,)

    def gpus(self) -> tuple[CatalogGpu, ...]:
        """Return all rows in the order of the catalog."""
        return tuple(self._by_name.values())

    def get(self, canonical: str) -> CatalogGpu | None:
        """Return one row by its canonical name, or the entry for a common name of several rows."""
        return self._by_name.get(canonical) or self._unclear.get(canonical)

    def may_be(self, name: str, other: str) -> bool:
        """Return whether two names can mean the same card.

        "H100" and "H100 SXM" can, "H100 SXM" and "H100 PCIe" cannot.
        """
        if name == other:
            return True
        one, two = self.get(name), self.get(other)
        return bool(one and two and set(one.members or (name,)) & set(two.members or (other,)))

    def sold_memory_gib(self, canonical: str, reported_gib: float) -> float:
        """Return the memory as sold: an "80 GB" card reports 79.6, a "24 GB" card with ECC 22.4.

        The label counts if the report is typical for such a card; otherwise the report itself does (slices, rebuilt
        cards, smaller editions).
        """
        gpu = self.get(canonical)
        if gpu is not None and gpu.members:
            gpu = min((self._by_name[name] for name in gpu.members), key=lambda one: one.memory_distance(reported_gib))
        if gpu is None:
            return reported_gib
        if reported_gib < max(gpu.memory_gib * (1 - _OWN_SIZE), gpu.reported_min_gib * _REPORT_SLACK):
            return reported_gib
        return max(reported_gib, gpu.memory_gib)

    def _named(self, text: str) -> list[CatalogGpu]:
        key = fold(text)
        if key in self._canonical:
            return self._by_key[key]
        return self._families.get(key, [])

    def _spelled(self, text: str) -> list[CatalogGpu]:
        return self._exact.get(text.casefold()) or self._by_key.get(fold(text), [])

    def _sized(self, text: str) -> list[CatalogGpu]:
        base, size = without_size(text)
        if size is None:
            return []
        low, high = (size * factor for factor in _SAME_SIZE)
        return [gpu for gpu in self._named(base) or self._spelled(base) if low <= gpu.memory_gib <= high]

    def _parsed(self, text: str) -> list[CatalogGpu]:
        """The rows that match the parts of a spelling: its model, its memory, its socket, its architecture.

        A word that the catalogue knows as part of a name counts ("RTX PRO 6000 Server"); one that it does not know is
        left out ("RTX PRO 4500 Server Edition").
        """
        for reading in readings(text):
            if rows := self._rows_of(reading):
                fitting = [gpu for gpu in rows if _fits(gpu, reading)]
                return self._in_socket(fitting, reading.socket)
        return []

    def _rows_of(self, reading: Reading) -> list[CatalogGpu]:
        if is_number(reading.base):
            return self._numbered(reading.base)
        found = self._spelled(reading.base)
        if found or reading.socket not in (None, *_SOCKETS):
            return found
        # a family without an alias of its own ("A800"), but never a card of another socket
        family = self._families.get(fold(reading.base), [])
        return [gpu for gpu in family if reading.socket is None or _SOCKETS[reading.socket](gpu)]

    def _numbered(self, base: str) -> list[CatalogGpu]:
        """The card of a bare number, if exactly one series has it and it names one card there: "4090", not "6000"."""
        found = [rows for series in _SERIES if (rows := self._by_key.get(fold(series + base)))]
        alone = found[0] if len(found) == 1 else []
        return alone if len({gpu.family for gpu in alone}) == 1 else []

    def _in_socket(self, rows: list[CatalogGpu], socket: str | None) -> list[CatalogGpu]:
        """The rows with this socket; all rows if none has it, because then the socket is wrong."""
        if socket is None or not rows:
            return rows
        sisters = self._families.get(fold(rows[0].family), [])
        for group, fits in ((rows, _SOCKETS[socket]), (sisters, _SOCKETS[socket]), (sisters, _BROADER.get(socket))):
            if fits is not None and (fitting := [gpu for gpu in group if fits(gpu)]):
                return fitting
        return rows

    def _resolve(self, spelling: str, memory_gib: float | None, socket: str | None) -> GpuName:
        rows = self._spelled(spelling)
        if not rows:
            fraction = gpu_fraction(spelling)
            if fraction < WHOLE or fold(spelling) in _REFUSED:
                reason = _REFUSED.get(fold(spelling), f"a slice, {fraction:.3g} of a GPU, and not a GPU")
                return GpuName(spelling, spelling, False, reason=reason)
            rows = self._parsed(spelling)
        if not rows:
            name, family = plain_name(spelling, self._series, self._by_key)
            return GpuName(name, family, False)
        stated, *_, reading = readings(spelling)  # "HGX H100" states its socket, too
        in_name = reading.socket or stated.socket
        if socket is None or in_name in (None, socket):
            return self._chosen(fold(spelling), self._in_socket(rows, socket), memory_gib)
        if (in_name, socket) == ("nvl", "pcie"):  # an NVL card is a PCIe card
            return self._chosen(fold(spelling), rows, memory_gib)
        others = [gpu for gpu in self._spelled(reading.base) if _SOCKETS[socket](gpu) and gpu not in rows]
        return self._of_two_sockets([*rows, *others], memory_gib, socket)

    def _of_two_sockets(self, rows: list[CatalogGpu], memory_gib: float | None, socket: str) -> GpuName:
        """The card if its memory decides, else the common name: neither the name nor the socket is trusted.

        The name decides where the catalogue knows no other card of this name.
        """
        found = self._chosen("", rows, memory_gib)
        if found.certain:
            return found
        reason = f"its name contradicts its socket, {socket}: {found.reason}"
        return GpuName(found.name, found.family, True, False, found.candidates, reason)

    def _chosen(self, key: str, rows: list[CatalogGpu], memory_gib: float | None) -> GpuName:
        if memory_gib is not None:
            rows = self._of_memory(key, rows, memory_gib)
        elif key in self._canonical:
            rows = [self._canonical[key]]
        if len(rows) == 1:
            return GpuName(rows[0].name, rows[0].family, True)
        return self._open(rows)

    def _of_memory(self, key: str, rows: list[CatalogGpu], memory_gib: float) -> list[CatalogGpu]:
        nearest = min(gpu.memory_distance(memory_gib) for gpu in rows)
        if nearest > memory_gib * _OWN_SIZE and key in self._families:
            # a bare family name ("H200") with the memory of a variant means that variant
            rows = [*rows, *(gpu for gpu in self._families[key] if gpu not in rows)]
            nearest = min(gpu.memory_distance(memory_gib) for gpu in rows)
        return [gpu for gpu in rows if gpu.memory_distance(memory_gib) <= nearest]

    def _open(self, rows: list[CatalogGpu]) -> GpuName:
        """The entry for the common name of several rows, when nothing distinguishes them."""
        names = tuple(gpu.name for gpu in rows)
        families = list(dict.fromkeys(gpu.family for gpu in rows))
        name = common_name(list(names), families[0])
        if name in self._by_name:
            return GpuName(name, self._by_name[name].family, True)
        family = families[0] if len(families) == 1 else name
        reason = f"it may be {' or '.join(names)}"
        return GpuName(name, family, True, False, names, reason)


@cache
def catalog() -> GpuCatalog:
    """Return the catalog that ships with gpuwatch; read once."""
    return GpuCatalog(_rows())


def _fits(gpu: CatalogGpu, reading: Reading) -> bool:
    size_gib = reading.size_gib
    if size_gib is not None and gpu.memory_distance(size_gib) > size_gib * _OWN_SIZE:
        return False
    return reading.architecture is None or gpu.architecture.casefold() == reading.architecture


def _unclear(by_key: Mapping[str, list[CatalogGpu]], by_name: Mapping[str, CatalogGpu]) -> dict[str, CatalogGpu]:
    """The common names for rows that a shared spelling, memory or socket may not distinguish."""
    found: dict[str, dict[str, CatalogGpu]] = {}
    for rows in by_key.values():
        for group in _groups(rows) if len(rows) > 1 else ():
            name = common_name([gpu.name for gpu in group], group[0].family)
            if name not in by_name:
                found.setdefault(name, {}).update({gpu.name: gpu for gpu in group})
    return {name: _joint(name, list(members.values())) for name, members in found.items()}


def _groups(rows: list[CatalogGpu]) -> Iterator[list[CatalogGpu]]:
    sizes: list[float | None] = [None, *dict.fromkeys(gpu.memory_gib for gpu in rows)]
    sockets: list[str | None] = [None, *_SOCKETS]
    for size in sizes:
        for socket in sockets:
            group = [gpu for gpu in rows if size in (None, gpu.memory_gib) and (not socket or _SOCKETS[socket](gpu))]
            if len(group) > 1:
                yield group


def _joint(name: str, rows: list[CatalogGpu]) -> CatalogGpu:
    families = {gpu.family for gpu in rows}
    shared = [text for text in rows[0].spellings if all(text in gpu.spellings for gpu in rows[1:])]
    return CatalogGpu(
        name=name,
        family=rows[0].family if len(families) == 1 else name,
        vendor=rows[0].vendor,
        memory_gib=min(gpu.memory_gib for gpu in rows),
        reported_min_gib=min(gpu.reported_min_gib for gpu in rows),
        reported_max_gib=max(gpu.reported_max_gib for gpu in rows),
        spellings=tuple(dict.fromkeys([name, *shared])),
        members=tuple(gpu.name for gpu in rows),
    )


def _rows() -> Iterator[CatalogGpu]:
    # not importlib.resources: importing it takes longer than reading the file; a loader also reads from a zip
    path = os.path.join(os.path.dirname(__file__), "gpu-catalog.csv")
    loader = __spec__.loader
    lines = loader.get_data(path).decode().splitlines()  # type: ignore[union-attr]
    for row in DictReader(lines):
        low, _, high = row["vram_reported_gib"].partition("-")
        yield CatalogGpu(
            name=row["canonical_name"],
            family=row["family"],
            vendor=row["vendor"],
            memory_gib=float(row["vram_gib"]),
            reported_min_gib=float(low),
            reported_max_gib=float(high or low),
            architecture=row["architecture"],
            form_factor=row["form_factor"],
            spellings=tuple(dict.fromkeys([row["canonical_name"], *filter(None, row["aliases"].split("|"))])),
        )
