"""The chain of an audit, and what it costs over a whole set."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gpuwatch.dataset.duplicates import compared_pairs, measure_mini_batches
from tests.cli.conftest import Shell
from tests.dataset import tiny_models
from tests.dataset.tiny_models import words


@pytest.fixture
def prepared(shell: Shell) -> Any:
    """Audit 300 rows, a third of them repeated, as JSON."""
    tiny_models.bert(shell.folder / "tiny")
    rows = [{"text": words([number % 200, number % 200 // 2, 7])} for number in range(300)]
    (shell.folder / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))

    def run(*options: str) -> dict[str, Any]:
        ran = shell("dataset", "audit", "a.jsonl", "--model", "tiny", "--near", "off", "--json", *options)
        assert ran.code == 0, ran.err
        found: dict[str, Any] = ran.json["preparation"]
        return found

    return run


def test_rows_go_in_and_out_of_each_step(prepared: Any) -> None:
    found = prepared("--per-cluster", "1", "--clusters", "9")
    names = [step["name"] for step in found["steps"]]
    assert names == ["equal texts", "wording", "tokens", "embeddings", "clusters", "nearly the same", "perplexity",
                     "rows per cluster"]  # fmt: skip
    for before, after in zip(found["steps"], found["steps"][1:], strict=False):
        assert (before["rows_out"], before["bytes_out"]) == (after["rows_in"], after["bytes_in"])
    first, *_, last = found["steps"]
    assert (first["rows_in"], first["rows_out"], first["read"]) == (300, 200, 300)
    assert 1 <= last["rows_out"] <= 9
    assert found["steps"][6]["seconds"] is None  # no model of perplexity
    assert found["kept_bytes"] == last["bytes_out"]


def test_the_whole_costs_its_share_and_the_price_is_named(prepared: Any, shell: Shell) -> None:
    file_gb = (shell.folder / "a.jsonl").stat().st_size / 1e9
    own = prepared()
    assert own["machine_usd_hour"] == [0.03, 0.10]
    assert own["machine_from"].startswith("assumed, as in the articles; ")
    assert own["processors_assumed"] is True
    whole = prepared(
        "--whole-gb", str(100 * file_gb), "--cpu-price", "0.05", "--price", "2", "--cpu-processors",
        str(2 * own["processors_here"]),
    )  # fmt: skip
    assert whole["scale"] == pytest.approx(100)
    assert whole["cost_usd"] == [pytest.approx(whole["hours"] * 0.05)] * 2
    for step in whole["steps"]:
        if step["seconds"] is not None and step["name"] in {"equal texts", "tokens"}:
            assert step["hours"] == pytest.approx(step["seconds"] * 100 / 3600 / 2)
    clusters = next(step for step in whole["steps"] if step["name"] == "clusters")
    assert clusters["hours"] == pytest.approx(clusters["seconds"] * 100 / 3600)  # on one processor
    model = sum(step["hours"] for step in whole["steps"] if step["name"] == "embeddings")
    assert whole["gpu_cost_usd"] == [pytest.approx((whole["hours"] - model) * 2), pytest.approx(whole["hours"] * 2)]


def test_a_measurement_outlives_its_run(prepared: Any) -> None:
    """A second audit reads nothing again, and reports what the first one measured."""
    first, again = prepared(), prepared()
    for name in ("equal texts", "wording", "tokens", "embeddings"):
        seconds = [step["seconds"] for found in (first, again) for step in found["steps"] if step["name"] == name]
        assert seconds[0] == pytest.approx(seconds[1], abs=0.5)
        assert seconds[1] > 0


def test_the_cheapest_machine_without_gpus_is_polled(
    prepared: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from gpuwatch.dataset import run
    from gpuwatch.dataset.preparation.cpu_machine import CpuMachine
    from gpuwatch.domain.plan.figures import exactly

    machine = CpuMachine(usd_hour=exactly(0.072), source="the cheapest", offers=12, processors=8.0)
    monkeypatch.setattr(run, "cheapest_machine", lambda _settings, *, poll: machine if poll else None)
    found = prepared("--poll", "--gpu", "H100", "--price", "2")
    assert (found["machine_usd_hour"], found["machine_offers"], found["processors"]) == ([0.072, 0.072], 12, 8.0)


def test_pairs_grow_with_the_square_until_clusters_are_compared_in_parts() -> None:
    assert compared_pairs([100], 10) / compared_pairs([100], 1) == 100
    assert compared_pairs([100_000], 10) / compared_pairs([100_000], 1) == 10


def test_more_rows_than_kmeans_takes_are_clustered_in_measured_mini_batches(
    prepared: Any, shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    """KMeans of few rows says nothing about mini-batches, whose centres take as long for any number of rows."""
    from gpuwatch.dataset.preparation import chain

    monkeypatch.setattr(chain, "measure_mini_batches", lambda _vectors, clusters, _seed: (3.6 * clusters, 0.0036))
    file_gb = (shell.folder / "a.jsonl").stat().st_size / 1e9
    whole = prepared("--whole-gb", str(1000 * file_gb))
    clusters = next(step for step in whole["steps"] if step["name"] == "clusters")
    assert clusters["hours"] == pytest.approx((360 + 0.0036 * 300_000) / 3600)


def test_mini_batches_take_a_fixed_time_and_one_per_row() -> None:
    vectors = np.random.RandomState(0).randn(500, 8).astype(np.float32)
    fixed_s, row_s = measure_mini_batches(vectors, 9, 42)
    assert 0 < row_s < fixed_s


def test_the_whole_set_is_as_large_as_on_the_disk_and_what_stays_is_a_bound(prepared: Any, shell: Shell) -> None:
    content = (shell.folder / "a.jsonl").read_bytes()
    (shell.folder / "a.jsonl.gz").write_bytes(gzip.compress(content))
    packed = (shell.folder / "a.jsonl.gz").stat().st_size
    options = ("--model", "tiny", "--near", "off", "--sample", "100", "--whole-gb", str(packed * 10 / 1e9))
    ran = shell("dataset", "audit", "a.jsonl.gz", *options)
    assert ran.code == 0, ran.err
    found = json.loads((shell.folder / "a.jsonl.gz.audit" / "report.json").read_text())["preparation"]
    assert (found["scale"], found["rows"], found["rows_compared"]) == (pytest.approx(10), 300, 100)
    assert found["whole_bytes"] == packed * 10
    assert found["kept_bytes"] == pytest.approx(packed * 10 * found["steps"][-1]["bytes_out"] / len(content), rel=1e-3)
    assert "of which at most " in ran.out
    assert "the share found in 300 rows, of which the model compared 100; in more rows more repeats" in ran.out
    assert "at most" not in shell("dataset", "audit", "a.jsonl", *options[:4]).out
