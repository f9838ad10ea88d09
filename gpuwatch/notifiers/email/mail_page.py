"""An alert as an HTML page for mail programs: the lines of `toolkit.layout`, for widths from 320 px to desktops. Pure.

Mail programs ignore much of CSS: everything essential is an inline style, and one column needs no media query. The
style sheet only inverts the colours in dark mode; programs that ignore it show the light page. Nothing is loaded from
other servers, and there is no script.
"""

from __future__ import annotations

import html
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby

from gpuwatch.language import current_language
from gpuwatch.notifiers.toolkit import Line, Piece, Role, custom_text, footer, lines, plain
from gpuwatch.ports import Alert, Severity

_BARS = {Severity.INFO: "#0b57d0", Severity.WARNING: "#a15c00", Severity.CRITICAL: "#b3261e"}
_FONT = "font-family:-apple-system,'Segoe UI',Roboto,Helvetica,Arial,sans-serif"
_STYLES = {
    Role.TITLE: "margin:0 0 12px;font-size:20px;line-height:26px;font-weight:700",
    Role.PART: "margin:24px 0 8px;padding-top:16px;border-top:1px solid #c4c7cc;font-size:18px;line-height:24px",
    Role.HEADING: "margin:20px 0 8px;font-size:16px;line-height:22px",
    Role.ITEM: "margin:0 0 8px;font-size:16px;line-height:24px",
    Role.FOOTER: "margin:8px 0 0;font-size:14px;line-height:20px;color:#5f6368",
}
_TAGS = {Role.TITLE: "h1", Role.PART: "h2", Role.HEADING: "h3"}
_TABLE = '<table role="presentation" cellspacing="0" cellpadding="0" style="width:100%;border:0">'
_LABEL = "padding:4px 12px 4px 0;font-size:14px;line-height:20px;color:#5f6368;vertical-align:top;width:112px"
_VALUE = "padding:4px 0;font-size:16px;line-height:22px;vertical-align:top"
_CODE = "padding:2px 6px;border-radius:4px;background:#eceff3;font-family:ui-monospace,Menlo,Consolas,monospace"
# 16 + 24 + 16 px: a touch target of more than 44 px
_BUTTON = (
    "display:block;margin:0 0 12px;padding:16px 20px;border-radius:8px;background:#0b57d0;color:#ffffff;"
    "font-size:16px;line-height:24px;font-weight:700;text-align:center;text-decoration:none"
)
PICTURE_ID = "chart.gpuwatch"
_IMAGE = '\n<img src="cid:{id}" alt="{alt}" style="display:block;width:100%;height:auto;margin:16px 0 0">'
_DARK = """\
@media (prefers-color-scheme: dark) {
  .gw-page { background: #17191c !important; color: #e8eaed !important; }
  .gw-card { background: #212429 !important; }
  .gw-quiet { color: #a9aeb6 !important; }
  .gw-code { background: #343940 !important; color: #e8eaed !important; }
  .gw-button { background: #a8c7fa !important; color: #06265a !important; }
}"""
_PAGE = """\
<!DOCTYPE html>
<html lang="{language}">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta name="supported-color-schemes" content="light dark">
<title>{title}</title>
<style>
{dark}
</style>
</head>
<body class="gw-page" style="margin:0;padding:0;background:#f1f3f5;color:#1f2328;{font}">
<div class="gw-page" style="padding:12px;background:#f1f3f5;color:#1f2328;{font}">
<div class="gw-card" style="max-width:600px;margin:0 auto;padding:16px 20px;border-top:4px solid {bar};\
border-radius:8px;background:#ffffff;overflow-wrap:anywhere;word-break:break-word">
{body}
</div>
</div>
</body>
</html>
"""


def as_html(alert: Alert, templates: Mapping[str, str] | None = None, *, picture_text: str | None = None) -> str:
    """Return the whole alert as a page, with everything escaped.

    Args:
        templates: the owner's plain texts by kind.
        picture_text: what the picture shows that the mail carries under `PICTURE_ID`; None: it carries none.
    """
    all_lines = [*lines(alert), *footer(alert)]
    custom = custom_text(templates, alert, plain)
    if custom is None:
        body = "\n".join(
            part for role, group in groupby(all_lines, key=lambda line: line.role) for part in _block(role, [*group])
        )
    else:
        body = f'<div style="{_STYLES[Role.ITEM]};white-space:pre-wrap">{_escaped(custom)}</div>'
    if picture_text is not None:
        body += _IMAGE.format(id=PICTURE_ID, alt=_escaped(picture_text))
    title = _escaped("".join(piece.text for piece in all_lines[0].pieces))
    return _PAGE.format(
        language=current_language(), title=title, dark=_DARK, font=_FONT, bar=_BARS[alert.severity], body=body
    )


def _block(role: Role, group: Sequence[Line]) -> Iterator[str]:
    """Group consecutive lines of one role."""
    if role is Role.FACT:
        rows = "\n".join(map(_row, group))
        yield f"{_TABLE}\n{rows}\n</table>"
    elif role is Role.LINK:
        yield from map(_button, group)
    elif role is not Role.GAP:
        tag, style = _TAGS.get(role, "div"), _STYLES[role]
        quiet = ' class="gw-quiet"' if role is Role.FOOTER else ""
        yield from (f'<{tag}{quiet} style="{style}">{"".join(map(_inline, line.pieces))}</{tag}>' for line in group)


def _row(line: Line) -> str:
    label, *value = line.pieces
    return (
        f'<tr><td class="gw-quiet" style="{_LABEL}">{_escaped(label.text)}</td>'
        f'<td style="{_VALUE}">{"".join(map(_inline, value))}</td></tr>'
    )


def _button(line: Line) -> str:
    """Return an item without the bullet of the text version."""
    (link,) = (piece for piece in line.pieces if piece.url)
    return f'<a class="gw-button" href="{html.escape(link.url or "")}" style="{_BUTTON}">{_escaped(link.text)}</a>'


def _inline(piece: Piece) -> str:
    text = _escaped(piece.text)
    if piece.code:
        return f'<code class="gw-code" style="{_CODE}">{text}</code>'
    if piece.url:
        return f'<a href="{html.escape(piece.url)}">{text}</a>'
    return f"<strong>{text}</strong>" if piece.bold else text


def _escaped(text: str) -> str:
    return html.escape(text)
