"""What a launcher says where its provider has no such thing."""

from __future__ import annotations

from datetime import date

import pytest

from gpuwatch.errors import OrderRefused, RefusalKind
from gpuwatch.providers.toolkit.basic_launcher import BasicLauncher


class Acme(BasicLauncher):
    name = "acme"


def test_what_there_is_not_is_not_reported() -> None:
    assert Acme().credit_usd() is None
    assert Acme().charges(date(2026, 11, 1), date(2026, 11, 2)) is None
    assert list(Acme().price_increases()) == []


def test_what_cannot_be_done_is_refused_in_one_line_that_names_the_provider() -> None:
    for do in (lambda: Acme().change_bid("1", 2.0), lambda: Acme().answer_increase("1", True)):
        with pytest.raises(OrderRefused, match=r"^acme: [^\n]+$") as refused:
            do()
        assert refused.value.kind is RefusalKind.BAD_ORDER
