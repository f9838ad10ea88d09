"""The real MiniLM, and a tiny model where only the way of the data counts."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from gpuwatch.dataset.audit import Audit, Models, audited
from gpuwatch.dataset.embedding import Embedder, open_embedder
from gpuwatch.dataset.model_folder import find_model
from gpuwatch.dataset.perplexity import CausalModel
from gpuwatch.dataset.removal import Rules
from gpuwatch.dataset.scan import read_as
from gpuwatch.dataset.tokens import TokenCounter
from gpuwatch.dataset.work_folder import opened
from tests.dataset import tiny_models

Auditor = Callable[..., Audit]


@pytest.fixture(scope="session")
def minilm() -> Models:
    """all-MiniLM-L6-v2 out of its package."""
    counter = TokenCounter(find_model(None).tokenizer, estimate=True)
    return Models(embedder=open_embedder(None, "onnx", 1), counter=counter)


@pytest.fixture(scope="session")
def tiny_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A BERT of 32 numbers a word."""
    return tiny_models.bert(tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture(scope="session")
def tiny(tiny_folder: Path) -> Models:
    """The tiny model, ready to read."""
    embedder: Embedder = open_embedder(tiny_folder, "onnx", 1)
    return Models(embedder=embedder, counter=TokenCounter(tiny_folder / "tokenizer.json", estimate=True))


@pytest.fixture
def audit(tiny: Models) -> Auditor:
    """Audits a file with the tiny model, or with those that are named."""

    def run(
        path: Path,
        rules: Rules | None = None,
        models: Models = tiny,
        causal: CausalModel | None = None,
        field: str = "",
    ) -> Audit:
        models = Models(embedder=models.embedder, counter=models.counter, causal=causal)
        reading = read_as(path, (field,) if field else ())
        with opened(path.with_name(f"{path.name}.audit")) as folder:
            return audited(path, reading, rules or Rules(near=0.95), models, folder, lambda _what, _done, _all: None)

    return run


def written(path: Path, texts: Sequence[str]) -> Path:
    """A file with one row a text."""
    path.write_text("".join(json.dumps({"id": number, "text": text}) + "\n" for number, text in enumerate(texts)))
    return path
