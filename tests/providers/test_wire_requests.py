"""Adapters of clouds of machines send what they sent before; `make golden` writes the golden requests again."""

from __future__ import annotations

import json

import pytest

from tests.contracts.benches import BENCHES
from tests.providers.wire_requests import CLOUDS, sent_by, sent_path


@pytest.mark.parametrize("name", CLOUDS)
def test_the_same_requests_are_sent_as_before(name: str) -> None:
    assert sent_by(BENCHES[name]) == json.loads(sent_path(name).read_text("utf-8"))
