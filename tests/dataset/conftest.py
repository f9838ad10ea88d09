"""The real MiniLM, and a tiny model for tests in which only the data flow matters."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from gpuwatch.dataset.audit import Audit, AuditModels, RemovalRules, audit_file
from gpuwatch.dataset.embedding import Embedder, open_embedder
from gpuwatch.dataset.onnx_models import TokenCounter, find_model
from gpuwatch.dataset.perplexity import CausalModel
from gpuwatch.dataset.scan import detect_fields
from gpuwatch.dataset.work_folder import open_work_folder
from tests.cli.conftest import market, shell  # noqa: F401 fixtures of the tests of the command
from tests.dataset import tiny_models

Auditor = Callable[..., Audit]


@pytest.fixture(scope="module")
def minilm() -> AuditModels:
    """Return all-MiniLM-L6-v2 from its package. It takes 250 MB, so it is released after its tests."""
    counter = TokenCounter(find_model(None).tokenizer, estimate=True)
    return AuditModels(embedder=open_embedder(None, "onnx", 1), counter=counter)


@pytest.fixture(scope="session")
def tiny_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Create a BERT with 32 numbers per word."""
    return tiny_models.bert(tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture(scope="session")
def tiny(tiny_folder: Path) -> AuditModels:
    """Load the tiny model."""
    embedder: Embedder = open_embedder(tiny_folder, "onnx", 1)
    return AuditModels(embedder=embedder, counter=TokenCounter(tiny_folder / "tokenizer.json", estimate=True))


@pytest.fixture
def audit(tiny: AuditModels) -> Auditor:
    """Audit a file with the tiny model, or with the given models."""

    def run(
        path: Path,
        rules: RemovalRules | None = None,
        models: AuditModels = tiny,
        causal: CausalModel | None = None,
        field: str = "",
    ) -> Audit:
        models = AuditModels(embedder=models.embedder, counter=models.counter, causal=causal)
        reading = detect_fields(path, (field,) if field else ())
        with open_work_folder(path.with_name(f"{path.name}.audit")) as folder:
            return audit_file(
                path, reading, rules or RemovalRules(near=0.95), models, folder, lambda _what, _done, _all: None
            )

    return run


def written(path: Path, texts: Sequence[str]) -> Path:
    """Write a file with one row per text."""
    path.write_text("".join(json.dumps({"id": number, "text": text}) + "\n" for number, text in enumerate(texts)))
    return path
