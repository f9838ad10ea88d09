"""The page of a machine that its provider takes back, and of one that was not what was offered."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuwatch.bootstrap import real_now
from gpuwatch.domain.launches.interruption import InterruptionKind, InterruptionNotice
from gpuwatch.domain.launches.launch import EndReason, LaunchState
from tests.web.launches.test_launch_pages import HOUR, ID, RENTS, stored
from tests.web.served import Served, page, served

AHEAD = ("Ends at the latest", "Reminder before the end", "Taken back by its provider")  # farthest first


@pytest.fixture
def web(tmp_path: Path) -> Iterator[Served]:
    with served(tmp_path, more=RENTS) as found:
        yield found


def test_a_machine_that_is_taken_back_says_so_first_and_in_the_order_of_time(web: Served) -> None:
    notice = InterruptionNotice(kind=InterruptionKind.TERMINATE, at=real_now() + HOUR / 6, noticed_at=real_now())
    stored(web.context.settings, spot=True, interruption=notice, max_runtime_s=10 * 3600)
    text = page(web, f"/launches/{ID}")
    assert 0 < text.index("takes it back at") < text.index("so far, at most")
    places = [text.index(line) for line in AHEAD]
    assert places == sorted(places)


def test_a_mere_risk_of_it_stands_after_the_cost(web: Served) -> None:
    notice = InterruptionNotice(kind=InterruptionKind.REBALANCE, noticed_at=real_now())
    stored(web.context.settings, spot=True, interruption=notice, max_runtime_s=10 * 3600)
    text = page(web, f"/launches/{ID}")
    assert 0 < text.index("so far, at most") < text.index("sees a higher risk")


@pytest.mark.parametrize("ends", [EndReason.NOT_AS_PROMISED, EndReason.MAX_RUNTIME])
def test_only_a_machine_that_passed_its_check_says_that_it_is_as_offered(web: Served, ends: EndReason) -> None:
    stored(web.context.settings, state=LaunchState.ENDED, ended_at=real_now(), end_reason=ends.text())
    text = page(web, f"/launches/{ID}")
    assert ("are as offered" in text) == (ends is EndReason.MAX_RUNTIME)
    assert ("To reclaim" in text) == (ends is EndReason.NOT_AS_PROMISED)
