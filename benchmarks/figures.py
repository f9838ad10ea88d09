"""A figure of docs/performance.md: what was measured, and its goal."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec


class Figure(msgspec.Struct, frozen=True, kw_only=True):
    """One measurement; its goal is an upper limit."""

    name: str
    goal: float
    measured: float
    unit: str  # as written after a number
    sample: str  # how many, and what else belongs to it

    @property
    def holds(self) -> bool:
        """Whether the goal is met."""
        return self.measured <= self.goal


def table(figures: Iterable[Figure]) -> str:
    """Return the figures as the Markdown table of docs/performance.md."""
    lines = ["| figure | goal | measured | | sample |", "|---|---:|---:|---|---|"]
    for one in figures:
        verdict = "holds" if one.holds else "**missed**"
        lines.append(
            f"| {one.name} | ≤ {one.goal:g}{one.unit} | {_text(one.measured)}{one.unit} | {verdict} | {one.sample} |"
        )
    return "\n".join(lines)


def _text(value: float) -> str:
    return f"{value:.0f}" if value >= 20 else f"{value:.1f}" if value >= 2 else f"{value:.2f}"
