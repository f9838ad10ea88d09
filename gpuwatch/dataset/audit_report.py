"""What an audit found: one JSON document, lines for the terminal, and an HTML page that loads nothing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape
from typing import Any

import numpy as np

from gpuwatch.dataset.audit import Audit, RemovalReason
from gpuwatch.dataset.duplicates import CROWDED_SHARE, NO_CLUSTER
from gpuwatch.dataset.formats.row_files import read_lines
from gpuwatch.dataset.onnx_models import Array
from gpuwatch.dataset.saving import TrainingSaving
from gpuwatch.dataset.scan import MIN_WORDING_SIMILARITY, NO_ROW, RowNumbers
from gpuwatch.dataset.text_rows import FieldSelection, UnusableLine, parse_content, read_text_row
from gpuwatch.domain.market.money import price_text
from gpuwatch.domain.market.offer import clean

_QUANTILES = (1, 5, 25, 50, 75, 95, 99)
_CLUSTERS = 10
_PAIRS = 10
_TWO_SIDED_95 = 1.96  # standard errors; that of a share is at most 0.5 / √rows
_CHARACTERS = 160
_SAMPLE = 2_000  # rows of a cluster that determine its centre


def report_of(audit: Audit, saving: TrainingSaving) -> dict[str, Any]:
    """The document; money fields end in `_usd` or `_usd_gpu_hour`."""
    largest, pairs = _examples(audit.read)
    scanned, removed = audit.scanned, audit.reasons != RemovalReason.KEPT
    return {
        "file": str(audit.path),
        "method": _method(audit),
        "samples": len(scanned.rows),
        "bytes": scanned.bytes,
        "lines": scanned.lines,
        "fields": list(audit.reading.fields),
        "fields_guessed": audit.reading.guessed,
        "fields_not_read": list(audit.reading.others),
        "skipped": dict(scanned.skipped),
        "rows": _row_weight(audit, np.ones(len(removed), bool)),
        "tokens_estimated": audit.models.counter.estimate or audit.sample is not None,
        "unread_rows": int(audit.read.scanned.rows["unread"].sum()),
        "cut_rows": int(audit.read.scanned.rows["cut"].sum()),
        "clusters": _cluster_facts(audit.read) | {"largest": largest},
        "sampled": _sample_json(audit),
        "exact_duplicates": int((audit.reasons == RemovalReason.EXACT).sum()),
        "wording_duplicates": int((audit.reasons == RemovalReason.WORDING).sum()),
        "near_duplicates": int((audit.reasons == RemovalReason.NEAR).sum()),
        "near_threshold": audit.rules.near,
        "near_examples": pairs,
        "perplexity": _perplexity(audit),
        "removed": {**_row_weight(audit, removed), "reasons": _by_reason(audit)},
        "kept": _row_weight(audit, ~removed),
        "saving": _saving(saving),
    }


def _sample_json(audit: Audit) -> dict[str, Any] | None:
    """The part of the file that a model read, and the error of shares of it; None: it read all rows."""
    if audit.sample is None:
        return None
    rows = len(audit.sample.scanned.rows)
    return {"rows": rows, "of": len(audit.scanned.rows), "share_error_95": round(_TWO_SIDED_95 * 0.5 / rows**0.5, 4)}


def _method(audit: Audit) -> str:
    near = "" if audit.rules.near is None else f"; near duplicates: cosine ≥ {audit.rules.near:g} inside a cluster"
    cut_text = (
        ""
        if audit.rules.near is None
        else f", and where a text was cut, {MIN_WORDING_SIMILARITY:.0%} of its wording (MinHash)"
    )
    return f"{audit.models.embedder.name}; {audit.clusters.method}{near}{cut_text}"


def _row_weight(audit: Audit, mask: Array) -> dict[str, int]:
    rows = audit.scanned.rows
    weighed = {key: int(rows[key][mask].sum(dtype=np.int64)) for key in ("bytes", "tokens")}
    return {"rows": int(mask.sum()), **weighed}


def _by_reason(audit: Audit) -> dict[str, dict[str, int]]:
    weights = {
        reason: _row_weight(audit, audit.reasons == reason)
        for reason in RemovalReason
        if reason is not RemovalReason.KEPT
    }
    return {reason.text: weight for reason, weight in weights.items() if weight["rows"]}


def _cluster_facts(audit: Audit) -> dict[str, Any]:
    clusters = audit.clusters
    return {
        "method": clusters.method,
        "samples": sum(clusters.sizes),
        "asked": clusters.wanted,
        "found": len(clusters.sizes),
        "top": clusters.top,
        "top_share": clusters.top_share,
        "top_share_before_joining": clusters.plain_top_share,
        "crowded_from": CROWDED_SHARE,
        "verdict": clusters.verdict,
        "rows_needed": clusters.rows_needed,
    }


def _perplexity(audit: Audit) -> dict[str, Any] | None:
    if audit.perplexities is None or audit.models.causal is None:
        return None
    finite = audit.perplexities[np.isfinite(audit.perplexities)]
    quantiles: Iterable[float] = np.quantile(finite, [percent / 100 for percent in _QUANTILES]) if len(finite) else []
    return {
        "model": audit.models.causal.name,
        "samples": len(finite),
        "quantiles": {str(percent): float(value) for percent, value in zip(_QUANTILES, quantiles, strict=False)},
        "most": audit.rules.most_perplexity,
        "least": audit.rules.least_perplexity,
    }


def _saving(saving: TrainingSaving) -> dict[str, Any]:
    price = saving.price
    return {
        "tokens_share": saving.share,
        "gpu_hours_whole": saving.gpu_hours_whole,
        "gpu_hours_saved": saving.gpu_hours_saved,
        "price_usd_gpu_hour": None if price is None else price.usd_gpu_hour,
        "price_from": None if price is None else price.source,
        "saved_usd": saving.saved_usd,
        "how": saving.how,
    }


def tokens_of(audit: Audit) -> tuple[int, int]:
    """Tokens of all rows, and of the removed ones."""
    removed = audit.reasons != RemovalReason.KEPT
    return _row_weight(audit, np.ones(len(removed), bool))["tokens"], _row_weight(audit, removed)["tokens"]


# --- examples ---------------------------------------------------------------------------------------------------------


def _examples(audit: Audit) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The largest clusters with the row nearest to each centre, and the least similar pairs of near duplicates.

    A wrong threshold is most likely visible in the least similar pairs. The rows are read from the file in one more
    pass, without parsing the other lines.
    """
    labels = audit.clusters.labels
    sizes = np.bincount(labels[labels != NO_CLUSTER])
    largest = [number for number in np.argsort(-sizes, kind="stable")[:_CLUSTERS] if sizes[number]]
    middles = [_most_central(audit, np.flatnonzero(labels == number)) for number in largest]
    near = np.flatnonzero(audit.near != NO_ROW)
    pairs = near[np.argsort(audit.cosines[near], kind="stable")][:_PAIRS].tolist()
    texts = _read(audit, [*middles, *pairs, *audit.near[pairs].tolist()])
    clusters = [
        {"rows": int(sizes[number]), "middle": texts[row]} for number, row in zip(largest, middles, strict=True)
    ]
    near_pairs = [
        {
            "cosine": round(float(audit.cosines[row]), 4),
            "goes": texts[row],
            "stays": texts[int(audit.near[row])],
        }
        for row in pairs
    ]
    return clusters, near_pairs


def _most_central(audit: Audit, members: RowNumbers) -> int:
    sample = members[:: max(1, len(members) // _SAMPLE)]
    vectors = np.asarray(audit.scanned.vectors[sample])
    return int(sample[(vectors @ vectors.mean(axis=0)).argmax()]) if len(sample) else 0


def _read(audit: Audit, rows: Iterable[int]) -> Mapping[int, dict[str, Any]]:
    """Row → its line number in the file (from 1) and the start of its text."""
    numbers = audit.scanned.rows["line"]
    row_by_line = {int(numbers[row]): row for row in rows}
    last = max(row_by_line, default=-1)
    texts: dict[int, dict[str, Any]] = {}
    for line in read_lines(audit.path):
        if line.number in row_by_line:
            text = _row_text(line.content, audit.reading)
            texts[row_by_line[line.number]] = {"line": line.number + 1, "text": text}
        if line.number >= last:
            break
    return texts


def _row_text(content: bytes | str, reading: FieldSelection) -> str:
    try:
        return clean(
            " ".join(read_text_row(parse_content(content), reading).text[: 4 * _CHARACTERS].split()),
            _CHARACTERS,
        )
    except UnusableLine:  # the file has just changed
        return ""


# --- lines for the terminal -------------------------------------------------------------------------------------------

_NOTABLE = 0.05  # a difference of shares
_UNITS = ("B", "kB", "MB", "GB", "TB")


def lines_for(report: Mapping[str, Any]) -> list[str]:
    """At most a dozen lines; the first is about the clusters."""
    return list(_lines(report))


def loss_lines(removed: int, rows: int, reasons: Mapping[str, int]) -> list[str]:
    """What is about to be removed, and why, if it is more than half of the rows; otherwise nothing."""
    if 2 * removed <= rows:
        return []
    causes = ", ".join(f"{reason} {count:,}" for reason, count in reasons.items())
    return [f"Warning: this removes {removed:,} of {rows:,} rows ({removed / rows:.1%}): {causes}"]


def size_text(count: float) -> str:
    """Bytes, with three significant digits."""
    for unit in _UNITS[:-1]:
        if count < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} {_UNITS[-1]}"


def _lines(report: Mapping[str, Any]) -> Iterator[str]:
    yield _concentration_text(report["clusters"])
    rows, guess = report["rows"], ", estimated" if report["tokens_estimated"] else ""
    fields = ", ".join(report["fields"]) + (" (guessed)" if report["fields_guessed"] else "")
    unread = f"; ignored: {', '.join(report['fields_not_read'][:8])}" if report["fields_not_read"] else ""
    bytes_text = size_text(rows["bytes"])
    yield f"Rows: {rows['rows']:,}, {bytes_text}, {rows['tokens']:,} tokens{guess}; text from {fields}{unread}"
    if report["sampled"]:
        yield (
            f"Sample: {report['sampled']['rows']:,} of {report['sampled']['of']:,} rows, drawn at random:"
            f" cluster shares may be off by {100 * report['sampled']['share_error_95']:.1f} points (95 %), and"
            " near duplicates are found within the sample only; --sample all reads every row"
        )
    if report["skipped"]:
        reasons = ", ".join(f"{reason} {count:,}" for reason, count in report["skipped"].items())
        yield f"Unusable lines: {sum(report['skipped'].values()):,} ({reasons})"
    if report["unread_rows"]:
        yield (
            f"Not judged by the model: {report['unread_rows']:,} rows whose text it cannot read (another script,"
            " codes); they are compared by equal text and by their wording only"
        )
    if report["cut_rows"]:
        yield f"Longer than the model reads: {report['cut_rows']:,} rows, compared by their beginning and their wording"
    if report["perplexity"]:
        quantiles = ", ".join(
            f"{percent} % {value:,.4g}" for percent, value in report["perplexity"]["quantiles"].items()
        )
        yield f"Perplexity ({report['perplexity']['model']}): {quantiles or 'not enough data'}"
    yield from _removable_lines(report)
    yield _saving_text(report["saving"])


def _concentration_text(clusters: Mapping[str, Any]) -> str:
    fact = f"{clusters['top']} of {clusters['found']} clusters hold {clusters['top_share']:.1%} of the rows"
    if abs(clusters["top_share"] - clusters["top_share_before_joining"]) >= _NOTABLE:
        fact += (
            f"; before similar clusters were joined, a tenth of them held {clusters['top_share_before_joining']:.1%}"
        )
    if not clusters["found"]:
        return "Not enough data to measure crowding: the model can read no row"
    if clusters["verdict"] == "not enough data":
        return (
            f"Not enough data to measure crowding: {clusters['samples']:,} rows,"
            f" {clusters['rows_needed']:,} required ({fact})"
        )
    if clusters["verdict"] == "crowded":
        return f"Warning: crowded: {fact} (limit {clusters['crowded_from']:.0%}); thin it with --per-cluster"
    return f"Spread: {fact}"


def _removable_lines(report: Mapping[str, Any]) -> Iterator[str]:
    removed, all_rows = report["removed"], report["rows"]
    if not removed["rows"]:
        yield "Removable: no rows by these rules"
        return
    shares = ", ".join(
        f"{removed[key] / max(1, all_rows[key]):.1%} of the {key}" for key in ("rows", "bytes", "tokens")
    )
    yield f"Removable: {removed['rows']:,} rows, {size_text(removed['bytes'])}, {removed['tokens']:,} tokens: {shares}"
    for reason, weight in removed["reasons"].items():
        yield f"  {reason}: {weight['rows']:,} rows, {weight['tokens']:,} tokens"


def _saving_text(saving: Mapping[str, Any]) -> str:
    if saving["gpu_hours_saved"] is None:
        return f"Saves {saving['tokens_share']:.1%} of the GPU-hours ({saving['how']})"
    hours = f"{saving['gpu_hours_saved']:,.4g} of {saving['gpu_hours_whole']:,.4g} GPU-hours"
    if saving["saved_usd"] is None:
        return f"Saves {hours} ({saving['how']}); add --price or --gpu for a figure in dollars"
    price = f"{price_text(saving['price_usd_gpu_hour'])} USD per GPU-hour ({saving['price_from']})"
    return f"Saves {hours}: {saving['saved_usd']:,.2f} USD at {price}; {saving['how']}"


# --- the HTML page ----------------------------------------------------------------------------------------------------

_STYLE = (
    "body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;color:#222;"
    "background:#fff}"
    "table{border-collapse:collapse;width:100%;margin:.5rem 0 1.5rem}th,td{padding:.25rem .6rem;text-align:left;"
    "border-bottom:1px solid #ddd;vertical-align:top;overflow-wrap:anywhere}.n{text-align:right;white-space:nowrap}"
    ".warn{background:#fff3cd;border-left:4px solid #d39e00;padding:.5rem 1rem}.bar{background:#4a7ab5;height:.6rem}"
    "@media(prefers-color-scheme:dark){body{color:#ddd;background:#181818}"
    "th,td{border-color:#444}.warn{background:#4a3c00}}"
)


def audit_page(report: Mapping[str, Any], lines: Sequence[str], steps: Sequence[Sequence[str]]) -> str:
    """The HTML page.

    Args:
        lines: the lines that the command prints.
        steps: the table of the steps, its head first.
    """
    name = _escaped(report["file"].rpartition("/")[2])
    warn = f'<p class="warn">{_escaped(lines[0])}</p>' if report["clusters"]["verdict"] == "crowded" else ""
    facts = "".join(f"<li>{_escaped(line)}</li>" for line in lines[1 if warn else 0 :])
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">"
        f"<title>{name}: audit</title><style>{_STYLE}</style></head><body><h1>{name}</h1>{warn}<ul>{facts}</ul>"
        f"<h2>Removable rows, and why</h2>{_removed_text(report)}"
        f"<h2>Preparation, step by step</h2>{_table(steps[0], steps[1:])}"
        f"<h2>Largest clusters</h2>{_clusters_table(report)}{_pairs(report)}{_skipped_text(report)}"
        f"<p>{_escaped(report['method'])}; {report['samples']:,} rows.</p></body></html>\n"
    )


def _removed_text(report: Mapping[str, Any]) -> str:
    rows = [(reason, *_weight_cells(weight)) for reason, weight in report["removed"]["reasons"].items()]
    rows += [("goes", *_weight_cells(report["removed"])), ("stays", *_weight_cells(report["kept"]))]
    return _table(("", "rows", "bytes", "tokens"), rows)


def _weight_cells(weight: Mapping[str, int]) -> tuple[str, str, str]:
    return f"{weight['rows']:,}", f"{weight['bytes']:,}", f"{weight['tokens']:,}"


def _clusters_table(report: Mapping[str, Any]) -> str:
    samples = max(1, (report["sampled"] or {"rows": report["samples"]})["rows"])
    cells = "".join(
        f'<tr><td class="n">{cluster["rows"]:,}</td><td class="n">{cluster["rows"] / samples:.1%}</td>'
        f'<td style="width:8rem"><div class="bar" style="width:{100 * cluster["rows"] / samples:.1f}%"></div></td>'
        f"<td>{_escaped(cluster['middle']['text'])}</td></tr>"
        for cluster in report["clusters"]["largest"]
    )
    head = '<tr><th class="n">rows</th><th class="n">share</th><th></th><th>most typical row</th></tr>'
    return f"<table>{head}{cells}</table>"


def _pairs(report: Mapping[str, Any]) -> str:
    if not report["near_examples"]:
        return ""
    rows = [
        (f"{pair['cosine']:.3f}", *(f"{row['line']}: {row['text']}" for row in (pair["goes"], pair["stays"])))
        for pair in report["near_examples"]
    ]
    return "<h2>Nearly the same: the least similar pairs</h2>" + _table(("cosine", "goes", "stays"), rows, numbers=(0,))


def _skipped_text(report: Mapping[str, Any]) -> str:
    if not report["skipped"]:
        return ""
    return "<h2>Unusable lines</h2>" + _table(
        ("", "lines"), [(reason, f"{count:,}") for reason, count in report["skipped"].items()]
    )


def _table(head: Sequence[str], rows: Iterable[Sequence[str]], numbers: Sequence[int] | None = None) -> str:
    right = range(1, len(head)) if numbers is None else numbers

    def line(cells: Sequence[str], tag: str) -> str:
        inner = "".join(
            f"<{tag}{' class=n' if column in right else ''}>{_escaped(cell)}</{tag}>"
            for column, cell in enumerate(cells)
        )
        return f"<tr>{inner}</tr>"

    return f"<table>{line(head, 'th')}{''.join(line(row, 'td') for row in rows)}</table>"


def _escaped(text: str) -> str:
    return escape(clean(text, 1_000))
