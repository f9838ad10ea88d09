"""`--html FILE` and `--png FILE`: a command's output as one HTML page, or its charts as a picture.

The page loads nothing and needs no script; every text is escaped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any, Final

import click

from gpuwatch.app.history import svg_charts, svg_style
from gpuwatch.app.history.svg_charts import SvgChart
from gpuwatch.atomic_file import atomic_file
from gpuwatch.cli.output import RecordedTable, Recording
from gpuwatch.domain.market.offer import clean
from gpuwatch.errors import UsageError

Command = Callable[..., Any]
_MAX_CHARACTERS: Final = 2_000  # characters of one text
_STYLE: Final = """
body{font:16px/1.5 system-ui,sans-serif;color:var(--text);background:var(--surface);max-width:60rem;margin:2rem auto;
padding:0 1rem}
h1{font-size:1.4rem;line-height:1.25}h2{font-size:1.1rem;margin-top:2rem}
.verdict{background:var(--sunken);border-left:4px solid var(--accent);padding:.6rem 1rem}.verdict p{margin:.2rem 0}
.wide{overflow-x:auto}table{border-collapse:collapse;font-variant-numeric:tabular-nums;font-size:.9rem}
th,td{padding:.2rem .7rem .2rem 0;text-align:left;border-bottom:1px solid var(--line);white-space:nowrap}
.n{text-align:right}ul.notes{color:var(--muted);font-size:.9rem}
svg{width:100%;height:auto;margin:1rem 0}
"""


def html_option(command: Command) -> Command:
    """`--html FILE`; arrives as `html: Path | None`."""
    return click.option(
        "--html", type=click.Path(dir_okay=False, path_type=Path), default=None, help="Write an HTML page to this file."
    )(command)


def png_option(command: Command) -> Command:
    """`--png FILE` and `--dark`; arrive as `png: Path | None` and `dark: bool`."""
    file = click.Path(dir_okay=False, path_type=Path)
    what = "Write a picture to this file; one that ends in .svg is light or dark as its reader's screen is."
    dark = click.option("--dark", is_flag=True, help="Draw the picture of --png on a dark ground.")
    return click.option("--png", type=file, default=None, help=what)(dark(command))


def refuse_html_with(html: Path | None, *, as_data: bool) -> None:
    """Reject `--html` with `--json` or `--csv`. Raises UsageError."""
    if html is not None and as_data:
        raise UsageError("use either --html, or --json and --csv")


def save_page(path: Path, page: str | bytes) -> None:
    """Write a page or a picture atomically. Raises UsageError: the file cannot be written."""
    try:
        with atomic_file(path) as part:
            part.write_bytes(page if isinstance(page, bytes) else page.encode())
    except OSError as fault:
        raise UsageError(f"cannot write {path}: {fault.strerror or fault}") from fault


def save_picture(
    path: Path, title: str, charts: Iterable[SvgChart | None], notes: Iterable[str] = (), *, dark: bool
) -> None:
    """Write charts as SVG or PNG, by the file's name. Raises UsageError: not possible here."""
    if path.suffix == ".svg":
        save_page(path, svg_charts.picture_svg(title, charts, notes))
    else:
        save_page(path, svg_charts.picture(title, charts, notes, svg_style.DARK if dark else svg_style.LIGHT))


def recorded_page(title: str, verdict: Sequence[str], charts: Iterable[SvgChart | None], recording: Recording) -> str:
    """The page: the verdict, the charts, then everything that was printed.

    Args:
        charts: None is left out.
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
    drawn = "".join(chart.svg() for chart in charts if chart)
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">"
        f"<title>{_escaped(title)}</title><style>{_page_style()}</style></head><body><main><h1>{_escaped(title)}</h1>"
        f'<div class="verdict">{first}</div>{drawn}{answers}'
        f"{f'<h2>Notes</h2><ul class=notes>{notes}</ul>' if notes else ''}</main></body></html>\n"
    )


def _page_style() -> str:
    """The style of the page and of its charts, light or dark as the reader's system is."""

    def palette(colours: Mapping[str, str]) -> str:
        return f":root{{{';'.join(f'--{name}:{colour}' for name, colour in colours.items())}}}"

    dark = f"@media(prefers-color-scheme:dark){{{palette(svg_style.DARK)}}}"
    return f":root{{color-scheme:light dark}}{palette(svg_style.LIGHT)}{dark}{_STYLE}{svg_style.STYLE}"


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
