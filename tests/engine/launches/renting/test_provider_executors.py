"""Orders at one provider never wait for those at another one."""

from __future__ import annotations

import threading

from gpuwatch.engine.launches.renting.launch_executor import ProviderExecutors


def test_orders_that_hang_at_one_provider_hold_up_no_other() -> None:
    gate, sent = threading.Event(), threading.Event()
    executors = ProviderExecutors()
    try:
        for _ in range(8):
            executors.submit("hangs", lambda: gate.wait(120) and None)
        executors.submit("answers", sent.set)
        assert sent.wait(60)
        executors.wait_for_submitted("answers", 60.0)
    finally:
        gate.set()
        executors.shutdown()


def test_submitted_work_is_waited_for_once() -> None:
    done: list[str] = []
    executors = ProviderExecutors()
    executors.submit("vastai", lambda: done.append("rented"))
    executors.wait_for_submitted("vastai", 60.0)
    assert done == ["rented"]
    executors.wait_for_submitted("vastai", 0.0)
    executors.shutdown()
