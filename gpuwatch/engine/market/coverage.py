"""What an empty answer leaves open although every provider answered: cards that one cannot list, unread rows."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

import msgspec

from gpuwatch.domain.market.gpu_names import catalog


class Coverage(msgspec.Struct, frozen=True, kw_only=True):
    """What the answers of one provider cannot contain.

    `not_listed`: queried GPUs that it has no name for, or that its adapter has no machine of. `skipped`: reason → rows.
    """

    provider: str
    not_listed: Collection[str] = frozenset()
    skipped: Mapping[str, int] = {}


def empty_text(coverages: Iterable[Coverage], gpu_names: Sequence[str], texts: Sequence[str]) -> str:
    """Return one line for an empty result of complete answers: "no offers (every provider answered)", or what is open.

    Args:
        gpu_names: canonical names of the query; empty: any.
        texts: the same as the owner wrote them.
    """
    gaps = list(_gaps(list(coverages), gpu_names, ", ".join(texts)))
    return f"no offers ({'; '.join(gaps)})" if gaps else "no offers (every provider answered)"


def _gaps(coverages: Sequence[Coverage], gpu_names: Sequence[str], shown: str) -> Iterator[str]:
    cannot = [one.provider for one in coverages if gpu_names and set(gpu_names) <= set(one.not_listed)]
    if cannot:
        yield f"{', '.join(cannot)} cannot list {shown}"
    if gpu_names and all(catalog().get(name) is None for name in gpu_names) and len(cannot) < len(coverages):
        yield f"no offer is called {shown}, which is not in gpuwatch's catalogue"
    for one in coverages:
        if rows := sum(one.skipped.values()):
            yield f"{rows} row{'' if rows == 1 else 's'} of {one.provider} not understood"
    others = len(coverages) - len(cannot)
    if cannot and others and not any(one.skipped for one in coverages):
        yield "every other provider answered" if others > 1 else "the other provider answered"
