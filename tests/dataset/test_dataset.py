"""`gpuwatch plan dataset` from the command line."""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path

import pytest

from gpuwatch.bootstrap import real_now
from gpuwatch.emulator import Marketplace
from gpuwatch.installation import install_hint, package_hint
from gpuwatch.ports import Answer, Completeness
from gpuwatch.storage.history.recording.history_recorder import SqlHistoryRecorder
from tests.builders import an_offer
from tests.cli.conftest import Shell
from tests.dataset import tiny_models
from tests.dataset.conftest import written
from tests.dataset.tiny_models import words
from tests.upgraded_store import open_upgraded


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Forty rows, of which twenty appear twice, and a broken line."""
    draw = random.Random(1)
    texts = [words([draw.randrange(250) for _ in range(9)]) for _ in range(20)]
    path = written(tmp_path / "data.jsonl", texts + texts)
    path.write_bytes(path.read_bytes() + b"broken\n")
    tiny_models.bert(tmp_path / "tiny")
    return path


def test_an_audit_is_json_alone_and_a_report_in_files(shell: Shell, data: Path) -> None:
    ran = shell(
        "dataset",
        "audit",
        "data.jsonl",
        "--model",
        "tiny",
        "--near",
        "off",
        "--gpu-hours",
        "8",
        "--price",
        "2",
        "--json",
    )
    assert (ran.code, ran.err) == (0, "")
    assert (ran.json["samples"], ran.json["exact_duplicates"], ran.json["skipped"]) == (40, 20, {"not JSON": 1})
    assert (ran.json["saving"]["gpu_hours_saved"], ran.json["saving"]["saved_usd"]) == (4.0, 8.0)
    assert ran.json["clusters"]["verdict"] == "not enough data"
    assert json.loads((shell.folder / "data.jsonl.audit/report.json").read_bytes()) == ran.json
    assert (shell.folder / "data.jsonl.audit/report.html").read_text().startswith("<!doctype html>")


def test_a_filter_writes_what_stays(shell: Shell, data: Path) -> None:
    before = data.read_bytes()
    ran = shell(
        "dataset", "filter", "data.jsonl", "out.jsonl", "--model", "tiny", "--near", "off", "--removed", "gone.jsonl"
    )
    assert ran.code == 0, ran.err
    lines = before.splitlines(keepends=True)
    assert (shell.folder / "out.jsonl").read_bytes() == b"".join([*lines[:20], lines[40]])
    assert (shell.folder / "gone.jsonl").read_bytes() == b"".join(lines[20:40])
    assert data.read_bytes() == before
    assert "out.jsonl: 20 rows, and 1 unreadable lines" in ran.out


def test_a_filter_refuses_its_input_before_it_reads_it(shell: Shell, data: Path) -> None:
    before = data.read_bytes()
    for target in ("data.jsonl", "./data.jsonl", str(data)):
        ran = shell("dataset", "filter", "data.jsonl", target, "--force", "--model", "tiny")
        assert (ran.code, ran.out) == (2, "")
        assert "is the input itself" in ran.err
    assert data.read_bytes() == before
    assert not (shell.folder / "data.jsonl.audit").exists()


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "no line is a valid row: it is empty"),
        (b"\n\n", "no line is a valid row: empty line (2)"),
        (b"\xff\xfe\n", "not UTF-8 (1)"),
    ],
)
def test_what_holds_no_rows_cannot_be_judged(shell: Shell, data: Path, content: bytes, said: str) -> None:
    data.write_bytes(content)
    ran = shell("dataset", "audit", "data.jsonl", "--model", "tiny")
    assert (ran.code, ran.out) == (3, "")
    assert said in ran.err
    assert not (shell.folder / "data.jsonl.audit").exists()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--near", "1.2"], "expected a cosine from 0.5 to 1"),
        (["--near", "nan"], "expected a cosine from 0.5 to 1"),
        (["--params", "7X"], "expected a number above 0"),
        (["--params", "7B"], "--params requires a GPU"),
        (["--poll"], "--poll requires a GPU"),
        (["--gpu", "Q100", "--price", "1"], "unknown GPU 'Q100'"),
        (["--max-perplexity", "9"], "requires --perplexity-model"),
        (["--perplexity-model", "tiny"], "not a language model: expected an input"),
        (["--model", "."], "has no model"),
        (["--work", "."], "contains other files"),
        (["--field", "nope"], "--field may name one of these: text"),
        (["--backend", "sentence-transformers"], package_hint("sentence-transformers")),
    ],
)
def test_what_cannot_be_is_a_line_and_exit_2(shell: Shell, data: Path, options: list[str], said: str) -> None:
    ran = shell("dataset", "audit", "data.jsonl", "--model", "tiny", *options)
    assert (ran.code, ran.out) == (2, "")
    assert said in ran.err
    assert "Traceback" not in ran.err


def test_without_the_extra_a_line_says_so(shell: Shell, data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("tokenizers", "onnxruntime", "safetensors"):
        monkeypatch.setitem(sys.modules, module, None)
    ran = shell("dataset", "audit", "data.jsonl", "--model", "tiny")
    assert ran.code == 2
    assert install_hint("dataset") in ran.err


def test_the_price_is_that_of_the_cheapest_offer_in_the_store(shell: Shell, data: Path) -> None:
    url = f"sqlite:///{shell.folder / 'past.db'}"
    shell.settings(f'database_url = "{url}"')
    database = open_upgraded(url)
    now = real_now()
    offers = [
        an_offer(offer_id="1", machine_id="1", quoted_usd_hour=2.0, observed_at=now),
        an_offer(offer_id="2", machine_id="2", gpu_count=4, quoted_usd_hour=7.0, observed_at=now),
        an_offer(offer_id="3", machine_id="3", quoted_usd_hour=0.5, spot=True, observed_at=now),
    ]
    answer = Answer(provider="vastai", observed_at=now, offers=offers, completeness=Completeness.COMPLETE, rows=3)
    SqlHistoryRecorder(database).record(answer, lane="sweep")
    database.close()
    ran = shell(
        "dataset",
        "audit",
        "data.jsonl",
        "--model",
        "tiny",
        "--gpu",
        "H100",
        "--gpu-hours",
        "8",
        "--near",
        "off",
        "--json",
    )
    assert ran.json["saving"]["price_usd_gpu_hour"] == pytest.approx(7.0 * 1.2 / 4)
    assert ran.json["saving"]["price_from"] == "the cheapest H100 SXM now, vastai"
    assert ran.json["saving"]["saved_usd"] == pytest.approx(4 * 7.0 * 1.2 / 4)
    ran = shell("dataset", "audit", "data.jsonl", "--model", "tiny", "--gpu", "RTX 4090", "--gpu-hours", "8", "--json")
    assert (ran.code, ran.json["saving"]["saved_usd"]) == (0, None)
    assert "no price of RTX 4090: the store has no offer of the last three hours; pass --price, or --poll" in ran.err


def test_the_price_may_be_asked_for(shell: Shell, data: Path, market: Marketplace) -> None:
    market.publish(gpu="H100 SXM", count=2, usd_hour=3.0)
    ran = shell(
        "dataset", "audit", "data.jsonl", "--model", "tiny", "--gpu", "H100", "--poll", "--params", "7B", "--json"
    )
    assert ran.json["saving"]["price_usd_gpu_hour"] == pytest.approx(1.8)
    assert "TFLOP/s × 40% of H100 SXM" in ran.json["saving"]["how"]
    assert ran.json["saving"]["saved_usd"] > 0


def test_a_crowd_warns_on_standard_error_beside_json(shell: Shell, tmp_path: Path) -> None:
    tiny_models.bert(tmp_path / "tiny")
    written(tmp_path / "data.jsonl", [words([1, 2])] * 600)
    ran = shell("dataset", "audit", "data.jsonl", "--model", "tiny", "--json")
    assert (ran.code, ran.json["clusters"]["verdict"]) == (0, "crowded")
    assert ran.err.startswith("Warning: crowded: 1 of 1 clusters hold 100.0% of the rows")


def test_a_cluster_is_thinned(shell: Shell, tmp_path: Path) -> None:
    tiny_models.bert(tmp_path / "tiny")
    written(tmp_path / "data.jsonl", [words([1, 2, number]) for number in range(100)])
    common = ("--model", "tiny", "--near", "off", "--clusters", "2", "--per-cluster", "5", "--json")
    ran = shell("dataset", "filter", "data.jsonl", "out.jsonl", *common)
    assert ran.json["written"]["rows"] == ran.json["kept"]["rows"] == 5 * ran.json["clusters"]["found"]
    assert "more than a cluster may keep" in ran.json["removed"]["reasons"]


def test_without_the_extra_it_is_what_is_named_first(
    shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "data.jsonl").write_text('{"text": "a"}\n')
    monkeypatch.setattr("gpuwatch.dataset.onnx_models._candidate_folders", lambda: iter(()))
    reported = shell("dataset", "audit", str(tmp_path / "data.jsonl"))
    assert (reported.code, "no embedding model on this machine" in reported.err) == (2, True)
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    reported = shell("dataset", "audit", str(tmp_path / "data.jsonl"))
    assert (reported.code, reported.err) == (
        2,
        f"tokenizers is not installed: {install_hint('dataset')}\n",
    )


def _one_text_nine_times(shell: Shell, tmp_path: Path) -> bytes:
    tiny_models.bert(tmp_path / "tiny")
    path = written(tmp_path / "data.jsonl", [words([1, 2, 3])] * 9 + [words(list(range(20, 60)))])
    assert path.parent == shell.folder
    return path.read_bytes()


def test_removing_more_than_half_is_said_before_it_is_done(shell: Shell, tmp_path: Path) -> None:
    lines = _one_text_nine_times(shell, tmp_path).splitlines(keepends=True)
    filter_ = ("dataset", "filter", "data.jsonl", "out.jsonl", "--model", "tiny", "--force")
    ran = shell(*filter_)  # a script cannot answer
    assert ran.code == 0
    assert "Warning: this removes 8 of 10 rows (80.0%): the same text 8\n" in ran.err
    assert (tmp_path / "out.jsonl").read_bytes() == lines[0] + lines[9]


@pytest.mark.parametrize(("answer", "code"), [(True, 0), (False, 1)])
def test_on_a_terminal_it_asks_first(
    shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: bool, code: int
) -> None:
    _one_text_nine_times(shell, tmp_path)
    asked: list[str] = []
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    monkeypatch.setattr("click.confirm", lambda text, **_: asked.append(text) or answer)
    filter_ = ("dataset", "filter", "data.jsonl", "out.jsonl", "--model", "tiny")
    ran = shell(*filter_)
    assert (ran.code, asked) == (code, ["Write the copy?"])
    assert (tmp_path / "out.jsonl").exists() == answer
    assert ("nothing was written" in ran.err) != answer
    assert shell(*filter_, "--yes", "--force").code == 0
    assert len(asked) == 1


def test_removing_half_asks_nothing(shell: Shell, data: Path) -> None:
    ran = shell("dataset", "filter", data.name, "out.jsonl", "--model", "tiny", "--near", "off")
    assert (ran.code, "Warning: this removes" in ran.err) == (0, False)


def test_a_pipeline_reads_each_file_by_its_own_shape_and_counts_the_rest(shell: Shell, tmp_path: Path) -> None:
    pytest.importorskip("datatrove")
    (tmp_path / "parts").mkdir()
    written(tmp_path / "parts" / "a.jsonl", [words([1, 2, 3]), words([4, 5, 6])])
    (tmp_path / "parts" / "b.jsonl").write_text('{"prompt": "w7", "completion": "w8 w9"}\nbroken\n')
    ran = shell("dataset", "pipeline", "parts", "out")
    assert ran.code == 0, ran.err
    assert "2 files, 3 rows: 0 exact duplicates, 0 near duplicates; 0 rows removed" in ran.out
    assert "Not judged, and kept: 1 lines (not JSON 1)" in ran.out


def test_unreadable_lines_that_go_count_as_lost(shell: Shell, tmp_path: Path) -> None:
    tiny_models.bert(tmp_path / "tiny")
    path = written(tmp_path / "data.jsonl", [words([1, 2, 3]), words(list(range(20, 60)))])
    path.write_bytes(path.read_bytes() + b"broken\n" * 5)
    filter_ = ("dataset", "filter", "data.jsonl", "out.jsonl", "--model", "tiny", "--near", "off", "--force")
    assert "Warning" not in shell(*filter_).err
    assert "Warning: this removes 5 of 7 rows (71.4%): not JSON 5\n" in shell(*filter_, "--drop-unread").err


def test_a_table_of_another_format_is_one_line(shell: Shell, tmp_path: Path) -> None:
    (tmp_path / "data.csv").write_text("text,label\nhello,1\nworld,0\n")
    ran = shell("dataset", "audit", "data.csv")
    assert (ran.code, ran.out) == (2, "")
    assert ran.err == (
        "data.csv: cannot be read: tables of text (CSV) are not read; write them as Parquet or JSON lines\n"
    )
