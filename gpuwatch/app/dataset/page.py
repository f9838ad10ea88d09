"""The report as one HTML page: no script, nothing loaded, every text of the data set escaped."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

from gpuwatch.domain.market.text import clean

_STYLE = (
    "body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;color:#222;"
    "background:#fff}"
    "table{border-collapse:collapse;width:100%;margin:.5rem 0 1.5rem}th,td{padding:.25rem .6rem;text-align:left;"
    "border-bottom:1px solid #ddd;vertical-align:top;overflow-wrap:anywhere}.n{text-align:right;white-space:nowrap}"
    ".warn{background:#fff3cd;border-left:4px solid #d39e00;padding:.5rem 1rem}.bar{background:#4a7ab5;height:.6rem}"
    "@media(prefers-color-scheme:dark){body{color:#ddd;background:#181818}"
    "th,td{border-color:#444}.warn{background:#4a3c00}}"
)


def page_of(report: Mapping[str, Any], lines: Sequence[str]) -> str:
    """The whole page.

    Args:
        lines: what the command says of the report, line by line.
    """
    name = _text(report["file"].rpartition("/")[2])
    warn = f'<p class="warn">{_text(lines[0])}</p>' if report["clusters"]["verdict"] == "crowded" else ""
    facts = "".join(f"<li>{_text(line)}</li>" for line in lines[1 if warn else 0 :])
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">"
        f"<title>{name}: audit</title><style>{_STYLE}</style></head><body><h1>{name}</h1>{warn}<ul>{facts}</ul>"
        f"<h2>What goes, and why</h2>{_removed(report)}"
        f"<h2>The fullest clusters</h2>{_clusters(report)}{_pairs(report)}{_skipped(report)}"
        f"<p>{_text(report['method'])}; {report['samples']:,} rows.</p></body></html>\n"
    )


def _removed(report: Mapping[str, Any]) -> str:
    rows = [(reason, *_weight(weight)) for reason, weight in report["removed"]["reasons"].items()]
    rows += [("goes", *_weight(report["removed"])), ("stays", *_weight(report["kept"]))]
    return _table(("", "rows", "bytes", "tokens"), rows)


def _weight(weight: Mapping[str, int]) -> tuple[str, str, str]:
    return f"{weight['rows']:,}", f"{weight['bytes']:,}", f"{weight['tokens']:,}"


def _clusters(report: Mapping[str, Any]) -> str:
    samples = max(1, report["samples"])
    cells = "".join(
        f'<tr><td class="n">{one["rows"]:,}</td><td class="n">{one["rows"] / samples:.1%}</td>'
        f'<td style="width:8rem"><div class="bar" style="width:{100 * one["rows"] / samples:.1f}%"></div></td>'
        f"<td>{_text(one['middle']['text'])}</td></tr>"
        for one in report["clusters"]["largest"]
    )
    head = '<tr><th class="n">rows</th><th class="n">share</th><th></th><th>the row in the middle</th></tr>'
    return f"<table>{head}{cells}</table>"


def _pairs(report: Mapping[str, Any]) -> str:
    if not report["near_examples"]:
        return ""
    rows = [
        (f"{one['cosine']:.3f}", *(f"{row['line']}: {row['text']}" for row in (one["goes"], one["stays"])))
        for one in report["near_examples"]
    ]
    return "<h2>Nearly the same: the least alike</h2>" + _table(("cosine", "goes", "stays"), rows, numbers=(0,))


def _skipped(report: Mapping[str, Any]) -> str:
    if not report["skipped"]:
        return ""
    return "<h2>Lines that are no rows</h2>" + _table(
        ("", "lines"), [(reason, f"{count:,}") for reason, count in report["skipped"].items()]
    )


def _table(head: Sequence[str], rows: Iterable[Sequence[str]], numbers: Sequence[int] | None = None) -> str:
    right = range(1, len(head)) if numbers is None else numbers

    def line(cells: Sequence[str], tag: str) -> str:
        inner = "".join(
            f"<{tag}{' class=n' if place in right else ''}>{_text(cell)}</{tag}>" for place, cell in enumerate(cells)
        )
        return f"<tr>{inner}</tr>"

    return f"<table>{line(head, 'th')}{''.join(line(row, 'td') for row in rows)}</table>"


def _text(text: str) -> str:
    return escape(clean(text, 1_000))
