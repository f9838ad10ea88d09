"""Write the table of docs/metrics.md from `gpuwatch.app.metric_specs`; a test keeps the two equal."""

from __future__ import annotations

from pathlib import Path

from gpuwatch.app.metric_specs import metrics_table

PAGE = Path(__file__).parents[1] / "docs" / "metrics.md"
_BEGIN, _END = "<!-- metrics -->\n", "<!-- /metrics -->"


def with_table(page: str) -> str:
    """The page with the newest table."""
    before, _, rest = page.partition(_BEGIN)
    after = rest.partition(_END)[2]
    return before + _BEGIN + "\n" + "\n".join(metrics_table()) + "\n\n" + _END + after


if __name__ == "__main__":
    PAGE.write_text(with_table(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
