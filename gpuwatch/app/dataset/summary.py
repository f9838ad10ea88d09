"""What a report says, in lines for a person; the first is about the clusters."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from gpuwatch.domain.market.money import price_text

_WORTH_TELLING = 0.05
_UNITS = ("B", "kB", "MB", "GB", "TB")


def lines_for(report: Mapping[str, Any]) -> list[str]:
    """A dozen lines at most."""
    return list(_lines(report))


def size(count: float) -> str:
    """Bytes, to three figures."""
    for unit in _UNITS[:-1]:
        if count < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} {_UNITS[-1]}"


def _lines(report: Mapping[str, Any]) -> Iterator[str]:
    yield _crowding(report["clusters"])
    rows, guess = report["rows"], ", estimated" if report["tokens_estimated"] else ""
    fields = ", ".join(report["fields"]) + (" (guessed)" if report["fields_guessed"] else "")
    unread = f"; not read: {', '.join(report['fields_not_read'][:8])}" if report["fields_not_read"] else ""
    yield f"Rows: {rows['rows']:,}, {size(rows['bytes'])}, {rows['tokens']:,} tokens{guess}; text from {fields}{unread}"
    if report["skipped"]:
        reasons = ", ".join(f"{reason} {count:,}" for reason, count in report["skipped"].items())
        yield f"Lines that are no rows: {sum(report['skipped'].values()):,} ({reasons})"
    if report["cut_rows"]:
        yield f"Longer than the model reads: {report['cut_rows']:,} rows; their beginning stands for them"
    if report["perplexity"]:
        shown = ", ".join(f"{one} % {value:,.4g}" for one, value in report["perplexity"]["quantiles"].items())
        yield f"Perplexity ({report['perplexity']['model']}): {shown or 'not enough data'}"
    yield from _removed(report)
    yield _saved(report["saving"])


def _crowding(clusters: Mapping[str, Any]) -> str:
    fact = f"{clusters['top']} of {clusters['found']} clusters hold {clusters['top_share']:.1%} of the rows"
    if abs(clusters["top_share"] - clusters["top_share_before_joining"]) >= _WORTH_TELLING:
        fact += f"; before like clusters were joined, a tenth held {clusters['top_share_before_joining']:.1%}"
    if clusters["verdict"] == "not enough data":
        return (
            f"Not enough data to say whether it is crowded: {clusters['samples']:,} rows,"
            f" {clusters['rows_needed']:,} needed ({fact})"
        )
    if clusters["verdict"] == "crowded":
        return f"Warning: crowded: {fact} ({clusters['crowded_from']:.0%} or more warns); --per-cluster thins it"
    return f"Spread: {fact}"


def _removed(report: Mapping[str, Any]) -> Iterator[str]:
    gone, all_rows = report["removed"], report["rows"]
    if not gone["rows"]:
        yield "Can go: nothing by these rules"
        return
    parts = (f"{gone[key] / max(1, all_rows[key]):.1%} of the {key}" for key in ("rows", "bytes", "tokens"))
    yield f"Can go: {gone['rows']:,} rows, {size(gone['bytes'])}, {gone['tokens']:,} tokens: {', '.join(parts)}"
    for reason, weight in gone["reasons"].items():
        yield f"  {reason}: {weight['rows']:,} rows, {weight['tokens']:,} tokens"


def _saved(saving: Mapping[str, Any]) -> str:
    if saving["gpu_hours_saved"] is None:
        return f"Saves {saving['tokens_share']:.1%} of the GPU-hours; how many is {saving['how']}"
    hours = f"{saving['gpu_hours_saved']:,.4g} of {saving['gpu_hours_whole']:,.4g} GPU-hours"
    if saving["saved_usd"] is None:
        return f"Saves {hours} ({saving['how']}); for dollars say --price or --gpu"
    price = f"{price_text(saving['price_usd_gpu_hour'])} USD per GPU-hour ({saving['price_from']})"
    return f"Saves {hours}: {saving['saved_usd']:,.2f} USD at {price}; {saving['how']}"
