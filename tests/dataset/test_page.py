"""The report shows all findings, and no text of a data set becomes markup of the page."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from gpuwatch.dataset.audit import RemovalRules
from gpuwatch.dataset.audit_report import audit_page, lines_for, report_of, size_text, tokens_of
from gpuwatch.dataset.saving import TrainingPrice, TrainingWork, training_saving
from tests.dataset.conftest import Auditor, written
from tests.dataset.tiny_models import words

HOSTILE = [
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "&lt;b&gt; </table></body>",
    "\x1b[31mred\x1b[0m \u202eright to left",
    "a\x00b",
]


class Tags(HTMLParser):
    """Collects the tags and attributes of a page, and checks that they are closed correctly."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: set[str] = set()
        self.attributes: set[str] = set()
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.add(tag)
        self.attributes |= {name for name, _ in attrs}
        if tag not in {"meta"}:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def made(audit: Auditor, path: Path, work: TrainingWork | None = None, **rules: Any) -> dict[str, Any]:
    done = audit(path, RemovalRules(**({"near": 0.95} | rules)))
    saved = training_saving(
        *tokens_of(done), work or TrainingWork(), None, TrainingPrice(usd_gpu_hour=2.5, source="as said")
    )
    return report_of(done, saved)


def test_hostile_texts_stay_text(audit: Auditor, tmp_path: Path) -> None:
    texts = [f"{words(list(range(14)))} {text}" for text in HOSTILE]  # the tiny model knows the 14 tokens that it reads
    path = written(tmp_path / "<b>\x1b[31m\u202e.jsonl", [*texts, *(f"{text} ." for text in texts), words([1, 2])])
    path.write_bytes(path.read_bytes() + b"<script>\n")
    report = made(audit, path, near=0.5)
    page = audit_page(report, lines_for(report), [("step", "rows in")])
    tags = Tags()
    tags.feed(page)
    assert tags.open == []
    assert not tags.seen & {"script", "img", "b", "a", "link", "iframe"}
    assert not {name for name in tags.attributes if name.startswith("on")} | tags.attributes & {"src", "href"}
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e]", page)
    assert "&lt;script&gt;alert(1)" in page
    assert report["near_examples"]


def test_the_figures_add_up(audit: Auditor, tmp_path: Path) -> None:
    texts = [words([1, 2, 3]), words([1, 2, 3]), words([50, 60]), words([50, 60]), words([50, 60]), words([7])]
    path = written(tmp_path / "a.jsonl", texts)
    path.write_bytes(path.read_bytes() + b"nothing\n\n")
    report = made(audit, path, near=None, work=TrainingWork(gpu_hours=80))
    lines = path.read_bytes().splitlines(keepends=True)
    assert report["rows"] == {"rows": 6, "bytes": sum(map(len, lines[:6])), "tokens": 13}
    assert report["removed"]["reasons"] == {
        "the same text": {"rows": 3, "bytes": sum(map(len, [lines[1], *lines[3:5]])), "tokens": 7}
    }
    assert (report["kept"]["rows"], report["kept"]["tokens"]) == (3, 6)
    assert report["skipped"] == {"not JSON": 1, "empty line": 1}
    assert (report["samples"], report["lines"], report["bytes"]) == (6, 8, path.stat().st_size)
    assert report["saving"]["gpu_hours_saved"] == pytest.approx(80 * 7 / 13)
    assert report["saving"]["saved_usd"] == pytest.approx(80 * 7 / 13 * 2.5)
    assert json.loads(json.dumps(report)) == report
    assert sum(one["rows"] for one in report["clusters"]["largest"]) == 6


def test_what_is_alike_is_shown_side_by_side(audit: Auditor, tmp_path: Path) -> None:
    texts = [words([1, 2]), words([100, 200, 250, 280]), words([1, 2]) + " ", words([9])]
    report = made(audit, written(tmp_path / "a.jsonl", texts), near=0.9999)
    (pair,) = report["near_examples"]
    assert (pair["goes"], pair["stays"]) == ({"line": 3, "text": "w1 w2"}, {"line": 1, "text": "w1 w2"})


def test_the_summary_says_what_counts(audit: Auditor, tmp_path: Path) -> None:
    report = made(audit, written(tmp_path / "a.jsonl", [words([1])] * 600), work=TrainingWork(gpu_hours=10))
    lines = lines_for(report)
    assert lines[0].startswith("Warning: crowded: 1 of 1 clusters hold 100.0% of the rows")
    assert lines[-1].startswith("Saves 9.983 of 10 GPU-hours: 24.96 USD at 2.50 USD per GPU-hour (as said)")
    assert 'class="warn"' in audit_page(report, lines, [("step", "rows in")])


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0 B"), (999, "999 B"), (1500, "1.5 kB"), (45.2e6, "45.2 MB"), (2e15, "2e+03 TB")]
)
def test_sizes(count: float, text: str) -> None:
    assert size_text(count) == text
