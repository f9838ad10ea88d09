"""An instance list with undocumented pages never counts as complete."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gpuwatch.errors import ProviderError
from gpuwatch.testing.relay import relaying
from tests.contracts.benches import BENCHES

ONE_ANSWER = ("lambda", "runpod", "shadeform", "tensordock")
MARKS: tuple[dict[str, Any], ...] = (
    {"next": "/more"}, {"next_page_token": "abc"}, {"nextCursor": "x"}, {"has_more": True}, {"total": 700},
)  # fmt: skip


def marked(body: bytes, mark: dict[str, Any]) -> bytes:
    value = json.loads(body)
    return json.dumps(value | mark).encode()


@pytest.mark.parametrize("mark", MARKS, ids=lambda mark: next(iter(mark)))
@pytest.mark.parametrize("name", ONE_ANSWER)
def test_a_page_is_not_the_list(name: str, mark: dict[str, Any]) -> None:
    bench = BENCHES[name]
    with bench.place() as place, relaying(place.url) as relay, bench.pointed_at(relay.url) as adapter:
        assert adapter.launcher is not None
        assert list(adapter.launcher.list_instances()) == []
        relay.corrupt = lambda body: marked(body, mark)
        with pytest.raises(ProviderError):
            adapter.launcher.list_instances()
        relay.corrupt = lambda body: marked(body, {key: 0 if value == 700 else None for key, value in mark.items()})
        assert list(adapter.launcher.list_instances()) == []
