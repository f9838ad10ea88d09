"""docs/sources.md: the rows as a page."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from benchmarks.sources.rows import COUNT, Source, SourceRow, SourceVerdict

_HEAD = """# Sources: what five documents ask, answered

Here you can look up what gpuwatch answers to each of the {count} questions and figures in the five documents that it
grew from, with the command that answers it and what that command prints. The questions are in our own words.

`make evidence` runs every command, offline, and writes this page only if each prints what stands here; a share of them
runs in the tests. The market is an [emulated](emulator.md) one, and prices of the past are [public series](data.md).
Two files are written on the fly: `night.csv`, six weeks of prices that follow the first document's table, and
`data.jsonl`, 600 rows to train on. What takes a running daemon or hours names the test that proves it.
The files `s0.toml` to `s4.toml` in `benchmarks/sources` have all rows, with settings and offers.

- **yes**: gpuwatch does it, and prints the document's figure where there is one
- **partly**: the reason says what is missing, and why
- **no**: the reason says why, and what there is instead

{command}, {day}.
"""
_TITLES = "| # | asked | | answer |\n|---|---|---|---|"


def page(sources: Sequence[Source], day: str) -> str:
    """Return the page; `day` is when all commands were run."""
    lines = [_HEAD.format(count=COUNT, command="`python -m benchmarks.sources`", day=day), *_counts(sources)]
    for source in sources:
        lines += ["", f"## {source.title}", "", source.about, "", _TITLES]
        lines += [_line(row) for row in sorted(source.row, key=lambda row: row.number)]
    return "\n".join([*lines, ""])


def _counts(sources: Sequence[Source]) -> Iterator[str]:
    verdicts = list(SourceVerdict)
    yield "| document | " + " | ".join(verdicts) + " |"
    yield "|---|" + "---|" * len(verdicts)
    every = [row for source in sources for row in source.row]
    for title, rows in [*((source.title, source.row) for source in sources), ("all", every)]:
        yield f"| {title} | " + " | ".join(str(sum(row.verdict is one for row in rows)) for one in verdicts) + " |"


def _line(row: SourceRow) -> str:
    lines = [line for line in row.settings.splitlines() if line and not line.startswith("name = ")]
    answer = [f"`{'; '.join(lines)}`"] if lines else []
    answer += [
        f"`gpuwatch {run.command}` → {', '.join(f'`{text.strip()}`' for text in run.prints)}" for run in row.runs
    ]
    answer += [_sentence(text) for text in (row.says, row.why) if text]
    answer += [f"`{test}`" for test in row.tests]
    cells = [str(row.number), row.asks, row.verdict.value, "<br>".join(answer)]
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _sentence(text: str) -> str:
    """Begin with a capital, unless it begins with code."""
    return f"{text[0].upper()}{text[1:]}."
