"""The conformance kit: the rules for every provider, built-in or a plugin's, as suites for pytest.

    from gpuwatch.testing import Bench, LauncherSuite, MarketSuite, ProviderServer, RefusedRequest, reply

    class TestMyMarket(MarketSuite):
        bench = Bench(name="mycloud", place=..., gpu="H100 SXM")

`ProviderServer` is the base of a stand-in for the provider on loopback; its handlers get an `EmulatorRequest` and
return a value, or an `EmulatorReply` that `reply` makes, or raise `RefusedRequest`.
"""

from __future__ import annotations

import pytest

from gpuwatch.emulator.answers import EmulatorReply, RefusedRequest, reply
from gpuwatch.emulator.provider_server import ProviderServer
from gpuwatch.emulator.request import EmulatorRequest

pytest.register_assert_rewrite(  # before the suites are imported, so that failed assertions show values
    *(f"gpuwatch.testing.{name}" for name in ("faults", "launcher", "lookup", "market", "ordered"))
)

from gpuwatch.testing.bench import Bench, ProviderDouble  # noqa: E402
from gpuwatch.testing.launcher import LauncherSuite  # noqa: E402
from gpuwatch.testing.market import MarketSuite  # noqa: E402

__all__ = [
    "Bench",
    "EmulatorReply",
    "EmulatorRequest",
    "LauncherSuite",
    "MarketSuite",
    "ProviderDouble",
    "ProviderServer",
    "RefusedRequest",
    "reply",
]
