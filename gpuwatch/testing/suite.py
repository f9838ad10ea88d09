"""The base of both suites: the bench, its stand-in, a relay in front of it, and the skipped parts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, ClassVar, TypeVar

import pytest

from gpuwatch import errors
from gpuwatch.errors import GpuwatchError, OrderRateLimited, RateLimited
from gpuwatch.ports.declarations import Adapter
from gpuwatch.testing.bench import PARTS, Bench
from gpuwatch.testing.faults import RETRY_AFTER_S
from gpuwatch.testing.relay import Relay

T = TypeVar("T", bound=Callable[..., Any])


def part(name: str) -> Callable[[T], T]:
    """Mark a test as belonging to a part of the suites that a bench may skip."""
    assert name in PARTS, name

    def decorator(test: T) -> T:
        test.part = name  # type: ignore[attr-defined]  # pytest hands the function itself to the fixture
        return test

    return decorator


@contextmanager
def case(what: object) -> Iterator[None]:
    """Run one of several cases of a test; a failure names it. A test per case would start a stand-in per case."""
    try:
        yield
    except BaseException as error:  # pytest's own outcomes are not Exceptions
        error.add_note(f"the case: {what}")
        raise


class Suite:
    """One provider. A subclass sets `bench`; its name must begin with "Test"."""

    bench: ClassVar[Bench]

    @pytest.fixture(autouse=True)
    def _skip_left_out(self, request: pytest.FixtureRequest) -> None:
        reason = self.bench.leaves_out.get(getattr(request.function, "part", ""))
        if reason:
            pytest.skip(f"{self.bench.name}: {reason}")

    @pytest.fixture
    def place(self) -> Iterator[Any]:
        """The stand-in."""
        with self.bench.place() as place:
            yield place

    @pytest.fixture
    def relay(self, place: Any) -> Iterator[Relay]:
        """The relay in front of the stand-in."""
        with self.bench.relaying(place.url) as relay:
            yield relay

    @pytest.fixture
    def adapter(self, relay: Relay) -> Iterator[Adapter]:
        """The adapter, connected through the relay."""
        with self.bench.pointed_at(relay.url) as adapter:
            yield adapter

    def check_error(
        self, expected: type[Exception] | tuple[type[Exception], ...], attempt: Callable[[], object], *secrets: str
    ) -> GpuwatchError:
        """Return the error of an attempt: one of those expected, in one line, without a secret."""
        with pytest.raises(expected) as raised:
            attempt()
        assert isinstance(raised.value, GpuwatchError)
        assert len(str(raised.value).splitlines()) == 1
        assert [secret for secret in secrets if secret in f"{raised.value!r} {raised.value}"] == []
        if isinstance(raised.value, RateLimited | OrderRateLimited) and "retry_after" not in self.bench.leaves_out:
            assert raised.value.retry_after_s == RETRY_AFTER_S
        return raised.value

    def expected_error(self, status: int, default: type[Exception], base: type[Exception]) -> type[Exception]:
        """Return the error class of a status: the bench's for this side (reads or orders), else the usual one."""
        for name in self.bench.renders.get(status, "").split("|"):
            found = getattr(errors, name.strip(), None)
            if found is not None and issubclass(found, base):
                return found  # type: ignore[no-any-return]  # a class of `errors`
        return default
