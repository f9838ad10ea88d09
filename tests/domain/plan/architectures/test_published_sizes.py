"""Sizes of 74 model types: published parameters within 1 %, and the cache of a token to the byte.

`published.json` has files as published, each with the source in which its keys and its number of parameters were looked
up; keys that concern neither are left out. "llmfit 1.1.17" is the list of models in that release on PyPI: the numbers
are those that Hugging Face counts in the published files. A copy is named where the original was not at hand, and a
model of the same shapes where only that one is counted. `mtp_b` are the weights (in billions, by the dimensions) of a
layer that predicts several tokens at once: the files hold it, and the tool names it instead of counting it.
`transformers-counts.json` has what transformers' own modules have for the defaults of a type (tools/model_counts.py).
"""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from gpuwatch.domain.plan.architectures.language_models import model_from_config
from tests.checkout import TESTS

_RECORDED = TESTS / "recorded" / "models"
PUBLISHED: list[dict[str, Any]] = json.loads((_RECORDED / "published.json").read_bytes())
_CITABLE = re.compile(r"https://|github\.com/\S+ at [0-9a-f]{7}: |[a-z-]+ \d+\.\d+\.\d+")  # a page, a file, a release
COUNTED: dict[str, Any] = json.loads((_RECORDED / "transformers-counts.json").read_bytes())["types"]


def test_the_sixty_most_used_types_are_among_them() -> None:
    assert len({row["config"]["model_type"] for row in PUBLISHED}) >= 74
    assert len(COUNTED) >= 70


def test_every_source_can_be_looked_up() -> None:
    sources = [row[name] for row in PUBLISHED for name in ("config_from", "params_from")]
    assert [source for source in sources if not _CITABLE.match(source)] == []


@pytest.mark.parametrize("row", PUBLISHED, ids=lambda row: row["model"])
def test_a_published_file_has_its_published_size(row: dict[str, Any]) -> None:
    model = model_from_config(row["config"], row["model"])
    assert model.params == pytest.approx((row["params_b"] - row.get("mtp_b", 0)) * 1e9, rel=0.01)
    assert 2 * model.shape.cached_values == row["kv_bytes_token"]
    assert [remark for remark in model.remarks if not remark.startswith("not counted: ")] == []


@pytest.mark.parametrize("kind", COUNTED)
def test_the_defaults_of_a_type_have_the_size_of_transformers_own_modules(kind: str) -> None:
    model = model_from_config({"model_type": kind}, kind)
    assert model.params == pytest.approx(COUNTED[kind]["params"], rel=0.02)
    if "kv" in COUNTED[kind]:
        assert 2 * model.shape.cached_values == COUNTED[kind]["kv"]
