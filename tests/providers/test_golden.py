"""Every recorded answer is parsed as in its golden file; `make golden` writes the golden files again."""

from __future__ import annotations

import json

import pytest
from golden import golden_path, replay, replayed_providers

from gpuwatch.testing.suite import case

PROVIDERS = replayed_providers()


def _golden_files(provider: str) -> list[str]:
    return sorted(path.name for path in golden_path(provider, "x").parent.glob("*.json"))


@pytest.mark.parametrize("provider", PROVIDERS)
def test_every_recorded_answer_is_understood_as_before(provider: str) -> None:
    replayed, names = replay(provider), _golden_files(provider)
    assert set(names) == set(replayed), "make golden writes them"
    for name in names:
        with case(name):
            assert replayed[name] == json.loads(golden_path(provider, name).read_text("utf-8"))
