"""`--verified`: prices of verified hosts alone, as a store answers that never saw another host."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from gpuwatch.bootstrap import real_now
from gpuwatch.domain.market.offer import Verification
from gpuwatch.storage.history.recording.history_recorder import SqlHistoryRecorder
from tests.cli.conftest import Shell
from tests.storage.stored_answers import an_answer, an_offer
from tests.upgraded_store import open_upgraded

HOSTS = {
    "a": Verification.VERIFIED, "b": Verification.UNVERIFIED, "c": Verification.VERIFIED,
    "d": Verification.DEVERIFIED, "e": None,
}  # fmt: skip
Answers = Callable[..., Any]


@pytest.fixture
def answers(shell: Shell) -> Answers:
    """Returns what a command prints as JSON of a store with all hosts, or with the verified ones alone."""
    rng, now = random.Random(7), real_now() - timedelta(minutes=20)
    for name, hosts in (("all", HOSTS), ("verified", {"a": HOSTS["a"], "c": HOSTS["c"]})):
        database = open_upgraded(f"sqlite:///{shell.folder}/{name}.db")
        history, rng = SqlHistoryRecorder(database), random.Random(7)
        for hours in sorted(rng.sample(range(1, 24 * 9), 150), reverse=True):
            prices = {host: round(rng.uniform(1.0, 4.0), 2) for host in HOSTS if rng.random() < 0.7}
            offers = [an_offer(host, usd, verification=hosts[host]) for host, usd in prices.items() if host in hosts]
            history.record(an_answer(*offers, observed_at=now - timedelta(hours=hours)), lane="sweep")
        history.record(
            an_answer(*(an_offer(h, 2.0, verification=v) for h, v in hosts.items()), observed_at=now), lane="sweep"
        )
        history.roll_up(real_now())
        database.close()

    until = ("--until", f"{now + timedelta(minutes=10):%Y-%m-%dT%H:%M}")

    def answer(name: str, *command: str) -> Any:
        shell.settings(f'database_url = "sqlite:///{shell.folder}/{name}.db"\n')
        ran = shell(*command, "--since", f"{now - timedelta(days=8):%Y-%m-%dT%H:%M}", *until, "--json")
        assert ran.code == 0, ran.err
        return ran.json

    return answer


@pytest.mark.parametrize("every", ["1h", "1d", "1w"])
def test_the_history_is_that_of_the_verified_hosts(answers: Answers, every: str) -> None:
    command = ("history", "H100 SXM", "--every", every, "--under", "2.5")
    asked, judge = answers("all", *command, "--verified"), answers("verified", *command)
    assert asked == judge
    assert asked != answers("all", *command)


def test_so_are_the_market_and_its_rank(answers: Answers) -> None:
    asked, judge = answers("all", "market", "--verified"), answers("verified", "market")
    (row,), (expected,) = asked.pop("gpus"), judge.pop("gpus")
    assert row == pytest.approx(expected)
    assert row != pytest.approx(answers("all", "market")["gpus"][0])
    assert row["offers"] == 2


def test_without_a_verified_host_nothing_was_on_sale(answers: Answers, shell: Shell) -> None:
    database = open_upgraded(f"sqlite:///{shell.folder}/none.db")
    answer = an_answer(
        an_offer("b", 2.0, verification=Verification.UNVERIFIED), observed_at=real_now() - timedelta(hours=1)
    )
    SqlHistoryRecorder(database).record(answer, lane="sweep")
    database.close()
    points = answers("none", "history", "H100 SXM", "--verified")["points"]
    assert points[-1]["looked"]
    assert points[-1]["min_price_usd_gpu_hour"] is None
