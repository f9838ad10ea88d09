"""`--html FILE`: a command's output as one HTML page with charts; it loads nothing and needs no script."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape
from pathlib import Path
from typing import Any, Final

import click

from gpuwatch.atomic_file import atomic_file
from gpuwatch.cli.recording import RecordedTable, Recording
from gpuwatch.domain.market.text import clean
from gpuwatch.errors import UsageError

Command = Callable[..., Any]
_MAX_CHARACTERS: Final = 2_000  # characters of one text
_STYLE: Final = """
:root{color-scheme:light dark;--ink:#1b1f24;--dim:#57606a;--page:#fff;--line:#d0d7de;--a:#0b57d0;--b:#b35900;
--c:#1a7f37;--shade:#eaeef2;--mark:#fff8c5}
@media(prefers-color-scheme:dark){:root{--ink:#e6edf3;--dim:#9aa4af;--page:#0d1117;--line:#30363d;--a:#6cb0ff;--b:#f0a35e;
--c:#56d364;--shade:#1c232b;--mark:#2d2a12}}
body{font:16px/1.5 system-ui,sans-serif;color:var(--ink);background:var(--page);max-width:60rem;margin:2rem auto;
padding:0 1rem}
h1{font-size:1.4rem;line-height:1.25}h2{font-size:1.1rem;margin-top:2rem}
.verdict{background:var(--mark);border-left:4px solid var(--b);padding:.6rem 1rem}.verdict p{margin:.2rem 0}
.wide{overflow-x:auto}table{border-collapse:collapse;font-variant-numeric:tabular-nums;font-size:.9rem}
th,td{padding:.2rem .7rem .2rem 0;text-align:left;border-bottom:1px solid var(--line);white-space:nowrap}
.n{text-align:right}ul.notes{color:var(--dim);font-size:.9rem}
svg{width:100%;height:auto;margin:1rem 0}svg text{fill:var(--dim);font-size:12px}svg .cell{fill:var(--ink)}
.grid{stroke:var(--line)}
.s0,.s1,.s2{fill:none;stroke-width:2}.s0{stroke:var(--a)}.s1{stroke:var(--b)}.s2{stroke:var(--c)}
.thin{stroke-width:1;stroke-dasharray:4 3}.dot{fill:var(--c)}.bar,.low{fill:var(--a)}.high{fill:var(--b)}
.none,.unknown{fill:var(--shade)}.none{fill-opacity:1!important}
.limit{stroke:var(--b);stroke-width:2;stroke-dasharray:6 4}
"""


def html_option(command: Command) -> Command:
    """`--html FILE`; arrives as `html: Path | None`."""
    return click.option(
        "--html", type=click.Path(dir_okay=False, path_type=Path), default=None, help="Write an HTML page to this file."
    )(command)


def refuse_html_with(html: Path | None, *, as_data: bool) -> None:
    """Reject `--html` with `--json` or `--csv`. Raises UsageError."""
    if html is not None and as_data:
        raise UsageError("use either --html, or --json and --csv")


def save_page(path: Path, page: str) -> None:
    """Write a page atomically. Raises UsageError: the file cannot be written."""
    try:
        with atomic_file(path) as part:
            part.write_text(page, encoding="utf-8")
    except OSError as fault:
        raise UsageError(f"cannot write {path}: {fault.strerror or fault}") from fault


def recorded_page(title: str, verdict: Sequence[str], charts: Sequence[str], recording: Recording) -> str:
    """The page: the verdict, the charts, then everything that was printed.

    Args:
        charts: SVG, made by `cli.svg`; empty ones are left out.
    """
    parts = [
        answer
        for answer in recording.answers
        if not (isinstance(answer, str) and (answer in verdict or not answer.strip()))
    ]
    answers = "".join(
        _table(answer) if isinstance(answer, RecordedTable) else f"<p>{_escaped(answer)}</p>" for answer in parts
    )
    notes = "".join(f"<li>{_escaped(note)}</li>" for note in recording.notes if note not in verdict)
    first = "".join(f"<p>{_escaped(line)}</p>" for line in verdict)
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">"
        f"<title>{_escaped(title)}</title><style>{_STYLE}</style></head><body><main><h1>{_escaped(title)}</h1>"
        f'<div class="verdict">{first}</div>{"".join(charts)}{answers}'
        f"{f'<h2>Notes</h2><ul class=notes>{notes}</ul>' if notes else ''}</main></body></html>\n"
    )


def _table(record_output: RecordedTable) -> str:
    head = "".join(
        _cell("th", text, right) for text, right in zip(record_output.headings, record_output.right, strict=True)
    )
    rows = "".join(
        f"<tr>{''.join(_cell('td', text, right) for text, right in zip(row, record_output.right, strict=True))}</tr>"
        for row in record_output.rows
    )
    title = f"<h2>{_escaped(record_output.title)}</h2>" if record_output.title else ""
    return f'{title}<div class="wide"><table><tr>{head}</tr>{rows}</table></div>'


def _cell(tag: str, text: str, right: bool) -> str:
    return f"<{tag}{' class=n' if right else ''}>{_escaped(text)}</{tag}>"


def _escaped(text: str) -> str:
    """Escape text: what a host wrote never becomes markup."""
    return escape(clean(text.strip(), _MAX_CHARACTERS))
