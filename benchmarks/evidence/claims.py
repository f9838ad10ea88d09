"""A claim, its measured figure, and how both are printed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import StrEnum
from textwrap import fill
from typing import NamedTuple


class Holds(StrEnum):
    """The verdict on a claim."""

    YES = "yes"
    NO = "**no**"
    TOO_FEW = "too few to tell"  # the figure misses the claim, but by less than chance explains
    NOT_CLAIMED = "not claimed"


class Claim(NamedTuple):
    """One line of the page.

    Attributes:
        text: the claim.
        found: the figure.
        needed: what the figure must be; "" if there is no claim and the figure is only information.
        sample: what was counted.
    """

    text: str
    found: str
    needed: str
    sample: str
    holds: Holds


class Section(NamedTuple):
    """One subject: its claims, and its omissions and assumptions."""

    title: str
    page: str
    claims: Sequence[Claim]
    notes: Sequence[str]


def markdown(section: Section) -> Iterable[str]:
    """Return the section as lines of Markdown."""
    yield f"## {section.title}\n"
    yield f"Claims of [{section.page}]({section.page}).\n"
    yield "| claim | found | needed | counted over | holds |"
    yield "|---|---|---|---|---|"
    for claim in section.claims:
        yield f"| {claim.text} | {claim.found} | {claim.needed or '–'} | {claim.sample} | {claim.holds} |"
    yield ""
    yield from map(bullet, section.notes)


def bullet(text: str) -> str:
    """Return an item of a list, in lines of limited length."""
    return fill(text, width=120, initial_indent="- ", subsequent_indent="  ")


def judged(is_met: bool, is_chance: bool = False) -> Holds:
    """Return whether a figure meets the claim, or misses it by no more than chance explains."""
    return Holds.YES if is_met else Holds.TOO_FEW if is_chance else Holds.NO


def at_most(text: str, value: float, limit: float, sample: str, error: float = 0.0) -> Claim:
    """Claim that a share does not exceed a limit. error: 95 % of chance, as a share."""
    return Claim(text, f"{value:.1%}", f"≤ {limit:.0%}", sample, judged(value <= limit, value - error <= limit))


def at_least(text: str, value: float, limit: float, sample: str, error: float = 0.0) -> Claim:
    """Claim that a share does not fall below a limit. error: 95 % of chance, as a share."""
    found = f"{value:.1%} ± {error:.1%}" if error else f"{value:.1%}"
    return Claim(text, found, f"≥ {100 * limit:.3g}%", sample, judged(value >= limit, value + error >= limit))


def figure(text: str, value: float, sample: str) -> Claim:
    """A share that nothing is claimed about."""
    return Claim(text, f"{value:+.2%}", "", sample, Holds.NOT_CLAIMED)


def clustered_error(values: Sequence[float], clusters: Sequence[object]) -> float:
    """95 % of chance in a mean whose values are alike within clusters: 1.96 standard errors of cluster sums."""
    mean = sum(values) / len(values)
    sums: dict[object, float] = {}
    for value, cluster in zip(values, clusters, strict=True):
        sums[cluster] = sums.get(cluster, 0.0) + value - mean
    if len(sums) < 2:
        return 1.0
    few = len(sums) / (len(sums) - 1)
    return 1.96 * (few * sum(one**2 for one in sums.values())) ** 0.5 / len(values)
