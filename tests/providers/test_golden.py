"""Every recorded answer is parsed as in its golden file; `make golden` writes the golden files again."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import pytest
from golden import golden_path, replay, replayed_providers

PROVIDERS = replayed_providers()


def _golden_files(provider: str) -> list[str]:
    return sorted(path.name for path in golden_path(provider, "x").parent.glob("*.json"))


@lru_cache(maxsize=1)  # one provider's tests are consecutive, and the results of its answers take megabytes
def _replayed(provider: str) -> Mapping[str, Any]:
    return replay(provider)


@pytest.mark.parametrize(("provider", "name"), [(p, name) for p in PROVIDERS for name in _golden_files(p)])
def test_a_recorded_answer_is_understood_as_before(provider: str, name: str) -> None:
    expected = json.loads(golden_path(provider, name).read_text("utf-8"))
    assert _replayed(provider)[name] == expected


@pytest.mark.parametrize("provider", PROVIDERS)
def test_every_recorded_answer_has_its_golden_file_and_none_is_left_over(provider: str) -> None:
    assert set(_golden_files(provider)) == set(_replayed(provider)), "make golden writes them"
