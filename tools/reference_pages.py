"""Writes what the reference pages take from the program: commands, HTTP, JSON, metrics.

`python -m tools.reference_pages`, or `make golden`; a test compares each page with what would be written. The text
around the generated block is written by hand.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from gpuwatch.app.setup.metric_specs import METRICS
from tools import reference_api, reference_commands
from tools.docs_site import ROOT

_BEGIN, _END = "<!-- generated -->\n", "<!-- /generated -->"


def metric_rows() -> Iterator[str]:
    """The table of docs/metrics.md."""
    yield "| metric | type | labels | meaning |"
    yield "|---|---|---|---|"
    for metric in METRICS:
        labels = ", ".join(f"`{label}`" for label in metric.labels) or "–"
        yield f"| `{metric.name}` | {metric.kind.value} | {labels} | {metric.about} |"


# page of docs/ → the lines of its generated block
BLOCKS: dict[str, Callable[[], Iterator[str]]] = {
    "commands.md": reference_commands.lines,
    "http.md": reference_api.http_lines,
    "json.md": reference_api.json_lines,
    "metrics.md": metric_rows,
}


def written(name: str) -> str:
    """Return a page with a new block."""
    page = (ROOT / "docs" / name).read_text(encoding="utf-8")
    before, begin, rest = page.partition(_BEGIN)
    assert begin, f"docs/{name} has no {_BEGIN}"
    after = rest.partition(_END)[2]
    return before + _BEGIN + "\n" + "\n".join(BLOCKS[name]()).strip() + "\n\n" + _END + after


def write() -> None:
    """Write all pages."""
    for name in BLOCKS:
        (ROOT / "docs" / name).write_text(written(name), encoding="utf-8")


if __name__ == "__main__":
    write()
