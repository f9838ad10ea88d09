"""Sizes of 75 model types: published parameters within 2 %, and the cache of a token to the byte.

`published.json` has files as published, each with the source of its keys and of its number of parameters; keys that
concern neither are left out. `transformers-counts.json` has what transformers' own modules have for the defaults of a
type (tools/model_counts.py).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gpuwatch.domain.planning.language_models import model_from_config

_RECORDED = Path(__file__).parents[2] / "recorded" / "models"
PUBLISHED: list[dict[str, Any]] = json.loads((_RECORDED / "published.json").read_bytes())
COUNTED: dict[str, Any] = json.loads((_RECORDED / "transformers-counts.json").read_bytes())["types"]


def test_the_sixty_most_used_types_are_among_them() -> None:
    assert len({row["config"]["model_type"] for row in PUBLISHED}) >= 75
    assert len(COUNTED) >= 70
    assert all(row["config_from"] and row["params_from"] for row in PUBLISHED)


@pytest.mark.parametrize("row", PUBLISHED, ids=lambda row: row["model"])
def test_a_published_file_has_its_published_size(row: dict[str, Any]) -> None:
    model = model_from_config(row["config"], row["model"])
    assert model.params == pytest.approx(row["params_b"] * 1e9, rel=0.02)
    assert 2 * model.shape.cached_values == row["kv_bytes_token"]
    assert [remark for remark in model.remarks if not remark.startswith("not counted: ")] == []


@pytest.mark.parametrize("kind", COUNTED)
def test_the_defaults_of_a_type_have_the_size_of_transformers_own_modules(kind: str) -> None:
    model = model_from_config({"model_type": kind}, kind)
    assert model.params == pytest.approx(COUNTED[kind]["params"], rel=0.02)
    if "kv" in COUNTED[kind]:
        assert 2 * model.shape.cached_values == COUNTED[kind]["kv"]
