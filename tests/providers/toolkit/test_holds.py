"""A refusal holds its whole class: all threads, all watches, and the next process."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta

import pytest

from gpuwatch.errors import ProviderDown, ProviderError, QuotaSpent, RateLimited
from gpuwatch.ports import ProviderSettings
from gpuwatch.ports.declarations import Tools
from gpuwatch.ports.market import Hold
from gpuwatch.providers.toolkit.api_client import PacedClient
from gpuwatch.providers.toolkit.http.client import PooledHttpClient

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)
MIDNIGHT = datetime(2026, 11, 22, tzinfo=UTC)


class MemoryHolds:
    """The port, in memory."""

    def __init__(self) -> None:
        self.kept: dict[tuple[str, str], Hold] = {}
        self.saved = 0

    def load(self, provider: str) -> Sequence[Hold]:
        return [hold for hold in self.kept.values() if hold.provider == provider]

    def save(self, hold: Hold) -> None:
        self.kept[hold.provider, hold.kind] = hold
        self.saved += 1


class Post:
    """A provider's client with clocks that advance only while somebody waits; `answers` are its responses, in order."""

    def __init__(self, http: PooledHttpClient, holds: MemoryHolds | None, interval_s: float = 6.0) -> None:
        self.wall, self.seconds = NOON, 100.0
        self._http = http
        self.holds = holds
        self.sent: list[tuple[str, float]] = []
        self.answers: list[ProviderError | None] = []
        self._interval_s = interval_s
        self.restart()

    def restart(self) -> None:
        settings = ProviderSettings(
            name="acme", base_url="http://127.0.0.1:1", search_interval_s=self._interval_s, timeout_s=30.0
        )
        tools = Tools(
            http=self._http, now=lambda: self.wall, monotonic=lambda: self.seconds, sleep=self.wait,
            stop=threading.Event(), holds=self.holds,
        )  # fmt: skip
        self.client = PacedClient(settings, tools, {"list": 1.0})

    def wait(self, seconds: float) -> None:
        self.seconds += seconds
        self.wall += timedelta(seconds=seconds)

    def ask(self, kind: str = "search") -> str:
        def attempt(_deadline_s: float) -> str:
            self.sent.append((kind, self.seconds))
            answer = self.answers.pop(0) if self.answers else None
            if answer is not None:
                raise answer
            return "answer"

        return self.client.read(kind, attempt)

    def on_read_refused(self, kind: str = "search") -> ProviderError:
        with pytest.raises(ProviderError) as error:
            self.ask(kind)
        return error.value


@pytest.fixture
def post(http: PooledHttpClient) -> Post:
    return Post(http, MemoryHolds())


def limited(seconds: float | None) -> Callable[[], RateLimited]:
    return lambda: RateLimited("acme: 429 too many", seconds)


def quota() -> QuotaSpent:
    return QuotaSpent("acme: 429 quota spent", MIDNIGHT)


def test_a_long_wait_holds_every_request_of_its_class(post: Post) -> None:
    post.answers = [limited(600.0)()]
    assert post.on_read_refused().was_sent
    for _ in range(5):
        error = post.on_read_refused()
        assert isinstance(error, RateLimited)
        assert not error.was_sent
        assert "no requests before 2026-11-21 12:10:00 UTC" in str(error)
        post.wait(100.0)
    assert len(post.sent) == 1
    post.wait(100.0)
    assert post.ask() == "answer"


def test_another_class_is_not_held(post: Post) -> None:
    post.answers = [limited(600.0)()]
    post.on_read_refused()
    assert post.ask("list") == "answer"


def test_a_short_wait_is_waited_for_by_all(post: Post) -> None:
    """Send the request of another watch, on another thread, after the refusal."""
    post.answers = [limited(20.0)()]
    other: list[float] = []
    plain_wait = post.wait

    def wait(seconds: float) -> None:
        if not other:
            other.append(0.0)
            post.client.read("search", lambda _: other.append(post.seconds))
        plain_wait(seconds)

    post.client.tools = Tools(
        http=post.client.tools.http, now=post.client.tools.now, monotonic=post.client.tools.monotonic,
        sleep=wait, stop=post.client.tools.stop, holds=post.holds,
    )  # fmt: skip
    assert post.ask() == "answer"
    assert other[1] >= post.sent[0][1] + 20.0


def test_refusals_without_a_number_hold_one_interval_then_twice_as_long_up_to_a_minute(post: Post) -> None:
    post.answers = [limited(None)() for _ in range(9)]
    while post.answers:
        post.on_read_refused()
        post.wait(1.0)
    gaps = [later - earlier for (_, earlier), (_, later) in zip(post.sent, post.sent[1:], strict=False)]
    for gap, least_s in zip(gaps, [6.0, 12.0, 24.0, 48.0, 60.0, 60.0, 60.0, 60.0], strict=True):
        assert least_s <= gap < least_s + 10.0
    post.wait(60.0)
    post.ask()
    post.answers = [limited(None)()]
    post.ask()
    assert post.sent[-1][1] - post.sent[-2][1] < 16.0  # after an answer the intervals start again


def test_a_refusal_holds_although_an_older_request_is_answered_after_it(post: Post) -> None:
    def older(_deadline_s: float) -> str:
        post.wait(1.0)
        post.answers = [limited(600.0)()]
        post.on_read_refused()
        return "answer"

    post.client.read("search", older)
    assert not post.on_read_refused().was_sent


def test_a_spent_quota_is_silence_with_one_probe_an_hour_until_it_is_reset(post: Post) -> None:
    post.answers = [quota() for _ in range(24)]
    while post.wall < MIDNIGHT - timedelta(seconds=60):
        error = post.on_read_refused()
        assert isinstance(error, QuotaSpent)
        assert error.resets_at == MIDNIGHT
        post.wait(10.0)
    assert len(post.sent) == 12
    post.answers = []
    post.wait(60.0)
    assert post.ask() == "answer"


def test_a_probe_that_is_answered_ends_the_silence(post: Post) -> None:
    post.answers = [quota()]
    post.on_read_refused()
    post.wait(3600.0)
    assert post.ask() == "answer"
    assert post.ask() == "answer"


def test_while_a_probe_is_out_no_other_leaves(post: Post) -> None:
    post.answers = [quota()]
    post.on_read_refused()
    post.wait(3600.0)
    seen: list[ProviderError] = []

    def probe(_deadline_s: float) -> str:
        post.wait(10.0)
        seen.append(post.on_read_refused())
        return "answer"

    post.client.read("search", probe)
    assert isinstance(seen[0], QuotaSpent)
    assert len(post.sent) == 1


def test_a_probe_that_found_no_network_does_not_cost_an_hour(post: Post) -> None:
    post.answers = [quota()]
    post.on_read_refused()
    post.wait(3600.0)
    post.answers = [ProviderDown("acme: no route")]
    assert post.ask() == "answer"


def test_a_hold_outlives_a_restart(post: Post) -> None:
    post.answers = [quota()]
    post.on_read_refused()
    post.wait(600.0)
    post.restart()
    error = post.on_read_refused()
    assert isinstance(error, QuotaSpent)
    assert (error.resets_at, error.was_sent, len(post.sent)) == (MIDNIGHT, False, 1)
    post.wait(3000.0)
    assert post.ask() == "answer"


def test_a_hold_of_another_provider_or_one_that_is_over_holds_nothing(post: Post) -> None:
    assert post.holds is not None
    over = NOON - timedelta(seconds=1)
    for provider, until in (("other", NOON + timedelta(minutes=10)), ("acme", over)):
        post.holds.save(
            Hold(provider=provider, kind="search", set_at=over - timedelta(minutes=1), until=until, reason="x")
        )
    post.restart()
    assert post.ask() == "answer"


def test_a_clock_that_was_set_back_holds_no_longer_than_the_provider_asked(post: Post) -> None:
    post.answers = [limited(600.0)()]
    post.on_read_refused()
    post.wall -= timedelta(days=300)
    post.restart()
    assert not post.on_read_refused().was_sent
    post.wait(600.0)
    assert post.ask() == "answer"


def test_running_instances_are_out_of_sight_for_a_minute_at_most(post: Post) -> None:
    post.answers = [limited(3600.0)()]
    post.on_read_refused("list")
    assert not post.on_read_refused("list").was_sent
    post.wait(60.0)
    assert post.ask("list") == "answer"


def test_short_holds_are_not_stored(post: Post) -> None:
    assert post.holds is not None
    post.answers = [limited(1.0)()]
    post.ask()
    assert post.holds.saved == 0
    post.answers = [limited(3.0)()]
    post.ask()
    assert post.holds.saved == 1


def test_without_a_store_a_hold_is_kept_in_memory_alone(http: PooledHttpClient) -> None:
    post = Post(http, None)
    post.answers = [limited(600.0)()]
    post.on_read_refused()
    assert not post.on_read_refused().was_sent
    post.restart()
    assert post.ask() == "answer"
