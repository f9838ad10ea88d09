"""Perplexity of a model whose answers are known."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from gpuwatch.dataset import perplexity as module
from gpuwatch.dataset.audit import RemovalReason, RemovalRules
from gpuwatch.dataset.perplexity import CausalModel
from gpuwatch.errors import UsageError
from tests.checkout import TESTS
from tests.dataset import tiny_models
from tests.dataset.conftest import Auditor, written
from tests.dataset.tiny_models import VOCAB, words

EVEN = np.zeros((VOCAB, VOCAB))  # every next word is as likely as any other
SURE = np.full((VOCAB, VOCAB), -20.0)
SURE[np.arange(VOCAB - 1), np.arange(1, VOCAB)] = 20.0  # w1 follows w0, w2 follows w1, …
TEXTS = [words([0, 1, 2, 3, 4]), words([9, 200, 3, 77]), words([5, 6]), words([5]), words(list(range(100)))]


@pytest.mark.parametrize("past", [False, True])
def test_an_even_model_is_as_perplexed_as_it_has_words(tmp_path: Path, past: bool) -> None:
    found = CausalModel(tiny_models.causal(tmp_path / "even", EVEN, past=past), 1).perplexities(TEXTS)
    assert found[[0, 1, 2, 4]] == pytest.approx(VOCAB, rel=1e-5)
    assert np.isnan(found[3])  # a single word has no predecessor


def test_what_a_model_expects_is_1_and_what_it_does_not_is_high(tmp_path: Path) -> None:
    found = CausalModel(tiny_models.causal(tmp_path / "sure", SURE), 1).perplexities(TEXTS)
    assert found[[0, 2, 4]] == pytest.approx(1, abs=1e-3)
    assert found[1] > 1e15


def test_a_gpt_2_as_transformers_exports_it_gives_the_perplexities_of_transformers() -> None:
    folder = TESTS / "recorded" / "tiny-gpt2"
    recorded = json.loads((folder / "expected.json").read_text(encoding="utf-8"))
    found = CausalModel(folder, 1).perplexities(recorded["texts"])
    unread = recorded["texts"].index("w9 unknown words w1")  # two unknown tokens: its perplexity says nothing
    assert np.isnan(found[unread])
    assert np.delete(found, unread) == pytest.approx(np.delete(recorded["perplexities"], unread), rel=1e-4)


def test_what_was_measured_is_not_measured_again(
    audit: Auditor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = CausalModel(tiny_models.causal(tmp_path / "sure", SURE), 1)
    path = written(tmp_path / "a.jsonl", TEXTS)
    first = audit(path, causal=model).perplexities
    monkeypatch.setattr(CausalModel, "perplexities", None)  # any call fails
    assert np.array_equal(np.asarray(first), np.asarray(audit(path, causal=model).perplexities), equal_nan=True)


def test_batches_change_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = CausalModel(tiny_models.causal(tmp_path / "m", np.random.default_rng(1).normal(size=(VOCAB, VOCAB))), 1)
    together = model.perplexities(TEXTS)
    monkeypatch.setattr(module, "_BATCH_TOKENS", 1)
    assert model.perplexities(TEXTS) == pytest.approx(together, nan_ok=True, rel=1e-5)


def test_rows_above_and_below_the_limits_go(audit: Auditor, tmp_path: Path) -> None:
    model = CausalModel(tiny_models.causal(tmp_path / "sure", SURE), 1)
    rules = RemovalRules(near=None, most_perplexity=1000, least_perplexity=0.5)
    done = audit(written(tmp_path / "a.jsonl", TEXTS), rules, causal=model)
    assert done.reasons.tolist() == [0, RemovalReason.SURPRISING, 0, 0, 0]
    done = audit(tmp_path / "a.jsonl", RemovalRules(near=None, least_perplexity=2), causal=model)
    assert done.reasons.tolist() == [RemovalReason.PLAIN, 0, RemovalReason.PLAIN, 0, RemovalReason.PLAIN]


def test_a_folder_that_is_no_language_model_is_reported_in_a_line(tiny_folder: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="has no language model"):
        CausalModel(tmp_path, 1)
    folder = tiny_models.causal(tmp_path / "small", EVEN[:, :5])  # knows only five words
    with pytest.raises(UsageError, match="the model has 5 tokens"):
        CausalModel(folder, 1).perplexities([words([1, 200])])
