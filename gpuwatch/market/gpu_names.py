"""GPU names: from any spelling at any provider to one canonical name, and from what an owner writes to names.

The catalogue is `gpu-catalog.csv` beside this file. A name is looked up by its letters and digits alone, so case,
blanks, hyphens and underscores do not matter; the memory of one GPU decides between variants that share a spelling.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from csv import DictReader
from functools import cache

import msgspec

MAX_NAME_LENGTH = 80  # longer is no GPU's name
_REMEMBERED_MAX = 5_000  # spellings; hostile answers must not fill the memory
_OWN_SIZE = 0.10  # reported memory within 10 % of the label is that card (ECC takes up to 9 %)
_REPORT_SLACK = 0.97  # a driver may report 3 % less than the least that the catalogue has seen
_SAME_SIZE = (0.9, 1.25)  # "H100 80GB" also means the 94 GB sister card, "A100 40GB" never the 80 GB one
_MAKERS = ("nvidia", "amd", "intel")
_SIZE = re.compile(r"(?<![a-z0-9.])(\d{1,3}) ?g(?:i?b)?(?![a-z0-9])")
_KEEP = {ord(c): c for c in "abcdefghijklmnopqrstuvwxyz0123456789"} | {
    ord(c): c.lower() for c in "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
}
_BLANKS = str.maketrans("_-()/,", "      ")


class GpuName(msgspec.Struct, frozen=True):
    """What a spelling stands for. `known` False: in no catalogue; `name` is the spelling, cleaned."""

    name: str
    family: str
    known: bool


class Gpu(msgspec.Struct, frozen=True, kw_only=True):
    """One row of the catalogue. Memory of one GPU: as sold, and the range that providers report."""

    name: str
    family: str
    vendor: str
    memory_gib: float
    reported_min_gib: float
    reported_max_gib: float
    spellings: tuple[str, ...]

    def memory_distance(self, memory_gib: float) -> float:
        """How far a reported memory lies outside this GPU's range; 0: inside."""
        return max(self.reported_min_gib - memory_gib, memory_gib - self.reported_max_gib, 0.0)


class Catalog:
    """Every GPU that is known by name."""

    def __init__(self, gpus: Iterable[Gpu]) -> None:
        self._by_name = {gpu.name: gpu for gpu in gpus}
        self._by_key: dict[str, list[Gpu]] = {}
        self._families: dict[str, list[Gpu]] = {}
        self._canonical: dict[str, Gpu] = {}
        for gpu in self._by_name.values():
            self._families.setdefault(fold(gpu.family), []).append(gpu)
            self._canonical[fold(gpu.name)] = gpu
            for key in dict.fromkeys(map(fold, gpu.spellings)):
                self._by_key.setdefault(key, []).append(gpu)
        self._remembered: dict[tuple[str, int | None], GpuName] = {}

    def resolve(self, spelling: str, memory_gib: float | None = None) -> GpuName:
        """The GPU that a provider's spelling means.

        Args:
            memory_gib: of one GPU, as reported; decides between variants of one spelling. None or odd: not used.
        """
        bucket = round(memory_gib * 2) if memory_gib is not None and 0 < memory_gib < 100_000 else None
        found = self._remembered.get((spelling, bucket))
        if found is None:
            found = self._resolve(clean_name(spelling), None if bucket is None else bucket / 2)
            if len(self._remembered) >= _REMEMBERED_MAX:
                self._remembered.clear()
            if len(spelling) <= MAX_NAME_LENGTH:
                self._remembered[spelling, bucket] = found
        return found

    def wanted(self, text: str) -> tuple[str, ...]:
        """Canonical names that an owner's text stands for; empty: nobody knows it.

        A family means all its members, unless it is a GPU's own name too ("RTX 4090"): then it means that GPU and
        the variants which providers spell alike. A size narrows: "A100 80GB".
        """
        text = clean_name(text)
        found = self._named(text)
        if not found:
            base, size = _without_size(text)
            if size is not None:
                low, high = (size * factor for factor in _SAME_SIZE)
                found = [gpu for gpu in self._named(base) or self._spelled(base) if low <= gpu.memory_gib <= high]
        return tuple(gpu.name for gpu in found or self._spelled(text))

    def suggest(self, text: str) -> tuple[str, ...]:
        """Names that may have been meant, best first, at most three."""
        from difflib import get_close_matches  # noqa: PLC0415 needed for a fault only

        shown = {key: gpu.name for key, gpus in self._by_key.items() for gpu in gpus[:1]}
        shown |= {key: gpus[0].family for key, gpus in self._families.items()}
        shown |= {key: gpu.name for key, gpu in self._canonical.items()}
        near = get_close_matches(fold(clean_name(text)), shown, n=12, cutoff=0.6)
        return tuple(dict.fromkeys(shown[key] for key in near))[:3]

    def spellings(self, canonical: str) -> tuple[str, ...]:
        """Every spelling of a GPU, its canonical name first; an unknown name is its own only spelling."""
        gpu = self._by_name.get(canonical)
        return gpu.spellings if gpu else (canonical,)

    def gpus(self) -> tuple[Gpu, ...]:
        """All rows, in the order of the catalogue."""
        return tuple(self._by_name.values())

    def get(self, canonical: str) -> Gpu | None:
        """One row by its canonical name."""
        return self._by_name.get(canonical)

    def sold_memory_gib(self, canonical: str, reported_gib: float) -> float:
        """Memory in the sense of a buyer: an "80 GB" card reports 79.6, a "24 GB" card with ECC 22.4.

        The label counts where the report is what such a card reports; otherwise the report itself (slices, rebuilt
        cards, smaller editions).
        """
        gpu = self._by_name.get(canonical)
        if gpu is None:
            return reported_gib
        if reported_gib < max(gpu.memory_gib * (1 - _OWN_SIZE), gpu.reported_min_gib * _REPORT_SLACK):
            return reported_gib
        return max(reported_gib, gpu.memory_gib)

    def _named(self, text: str) -> list[Gpu]:
        key = fold(text)
        if key in self._canonical:
            return self._by_key[key]
        return self._families.get(key, [])

    def _spelled(self, text: str) -> list[Gpu]:
        return self._by_key.get(fold(text), [])

    def _resolve(self, spelling: str, memory_gib: float | None) -> GpuName:
        candidates = self._spelled(spelling)
        if not candidates:
            base, size = _without_size(spelling)
            candidates = [gpu for gpu in self._spelled(base) if size is None or _fits_size(gpu, size)]
        if not candidates:
            return GpuName(spelling, spelling, False)
        gpu = self._choose(fold(spelling), candidates, memory_gib)
        return GpuName(gpu.name, gpu.family, True)

    def _choose(self, key: str, candidates: list[Gpu], memory_gib: float | None) -> Gpu:
        if memory_gib is None:
            own = self._canonical.get(key)
            return own or candidates[0]  # the catalogue's order says which variant a bare name means
        best = min(candidates, key=lambda gpu: gpu.memory_distance(memory_gib))
        if best.memory_distance(memory_gib) > memory_gib * _OWN_SIZE and key in self._families:
            # a bare family name ("H100") with a sister's memory (94) is the sister
            best = min([best, *self._families[key]], key=lambda gpu: gpu.memory_distance(memory_gib))
        return best


def fold(text: str) -> str:
    """A name's letters and digits, small, without its maker: what names are compared by.

    Letters of other alphabets stay: a name that merely looks like another is not that one.
    """
    if text.isascii():
        key = "".join(filter(None, map(_KEEP.get, map(ord, text))))
    else:
        key = "".join(filter(str.isalnum, text.casefold()))
    for maker in _MAKERS:
        if key.startswith(maker) and len(key) > len(maker):
            return key[len(maker) :]
    return key


def clean_name(text: str) -> str:
    """A spelling without control characters and surplus blanks, cut to a name's length."""
    text = text[: MAX_NAME_LENGTH * 4]
    if not text.isprintable():
        text = "".join(c if c.isprintable() else " " for c in text)
    return " ".join(text.split())[:MAX_NAME_LENGTH].rstrip() or "unknown"


@cache
def catalog() -> Catalog:
    """The catalogue that ships with gpuwatch; read once."""
    return Catalog(_rows())


def _without_size(text: str) -> tuple[str, float | None]:
    plain = text.translate(_BLANKS).casefold()
    found = _SIZE.search(plain)
    if found is None:
        return plain, None
    return plain[: found.start()] + plain[found.end() :], float(found[1])


def _fits_size(gpu: Gpu, size_gib: float) -> bool:
    return gpu.memory_distance(size_gib) <= size_gib * _OWN_SIZE


def _rows() -> Iterator[Gpu]:
    # not importlib.resources: its import alone takes longer than reading the file; a loader reads from a zip as well
    path = os.path.join(os.path.dirname(__file__), "gpu-catalog.csv")
    loader = __spec__.loader
    lines = loader.get_data(path).decode().splitlines()  # type: ignore[union-attr]
    for row in DictReader(lines):
        low, _, high = row["vram_reported_gib"].partition("-")
        yield Gpu(
            name=row["canonical_name"],
            family=row["family"],
            vendor=row["vendor"],
            memory_gib=float(row["vram_gib"]),
            reported_min_gib=float(low),
            reported_max_gib=float(high or low),
            spellings=tuple(dict.fromkeys([row["canonical_name"], *filter(None, row["aliases"].split("|"))])),
        )
