"""Writes the table of docs/metrics.md from `gpuwatch.app.setup.metric_specs`; a test compares the two."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from gpuwatch.app.setup.metric_specs import METRICS

PAGE = Path(__file__).parents[1] / "docs" / "metrics.md"
_BEGIN, _END = "<!-- metrics -->\n", "<!-- /metrics -->"


def with_table(page: str) -> str:
    """Return the page with a new table."""
    before, _, rest = page.partition(_BEGIN)
    after = rest.partition(_END)[2]
    return before + _BEGIN + "\n" + "\n".join(_rows()) + "\n\n" + _END + after


def _rows() -> Iterator[str]:
    yield "| metric | type | labels | meaning |"
    yield "|---|---|---|---|"
    for metric in METRICS:
        labels = ", ".join(f"`{label}`" for label in metric.labels) or "–"
        yield f"| `{metric.name}` | {metric.kind.value} | {labels} | {metric.about} |"


if __name__ == "__main__":
    PAGE.write_text(with_table(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
