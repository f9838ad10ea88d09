"""Several places in parallel: all answers in order, one failure hides no other, and a stop does not wait."""

from __future__ import annotations

import threading

from gpuwatch.errors import KeyRejected, ProviderDown, ProviderError
from gpuwatch.providers.toolkit.catalogue import query_all


def refuse() -> int:
    raise KeyRejected("a: wrong key")


def fail() -> int:
    raise ZeroDivisionError("secret-value")


def test_answers_come_in_the_order_of_their_places_and_errors_stand_for_themselves() -> None:
    first, second, third = query_all({"a": refuse, "b": lambda: 7, "c": fail}, threading.Event())
    assert isinstance(first, KeyRejected)
    assert second == 7
    assert type(third) is ProviderError
    assert str(third) == "c: ZeroDivisionError"


def test_what_has_not_come_when_gpuwatch_stops_is_not_waited_for() -> None:
    stop, never = threading.Event(), threading.Event()

    def hang() -> int:
        stop.set()
        never.wait(30)
        return 1

    quick, silent = query_all({"quick": lambda: 7, "silent": hang}, stop)
    never.set()
    assert isinstance(silent, ProviderDown)
    assert "gpuwatch is stopping" in str(silent)
    assert quick == 7
