"""Orders at one provider never wait for those at another."""

from __future__ import annotations

import threading

from gpuwatch.engine.provider_executors import ProviderExecutors


def test_orders_that_hang_at_one_provider_hold_up_no_other() -> None:
    gate, sent = threading.Event(), threading.Event()
    crew = ProviderExecutors()
    try:
        for _ in range(8):
            crew.begin("hangs", lambda: gate.wait(20) and None)
        crew.begin("answers", sent.set)
        assert sent.wait(5)
        crew.wait_for_begun("answers", 5.0)
    finally:
        gate.set()
        crew.shutdown()


def test_what_was_begun_is_waited_for_once() -> None:
    done: list[str] = []
    crew = ProviderExecutors()
    crew.begin("vastai", lambda: done.append("rented"))
    crew.wait_for_begun("vastai", 5.0)
    assert done == ["rented"]
    crew.wait_for_begun("vastai", 0.0)
    crew.shutdown()
