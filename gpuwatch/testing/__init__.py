"""The conformance kit: the rules for every provider, built-in or a plugin's, as suites for pytest.

    from gpuwatch.testing import Bench
    from gpuwatch.testing.launcher import LauncherSuite
    from gpuwatch.testing.market import MarketSuite

    class TestMyMarket(MarketSuite):
        bench = Bench(name="mycloud", place=..., gpu="H100 SXM")

Only the modules of the suites import pytest.
"""

from __future__ import annotations

import sys

from gpuwatch.testing.bench import Bench, ProviderDouble

__all__ = ["Bench", "ProviderDouble"]

if "pytest" in sys.modules:  # so that failed assertions of the suites show values, as in test files
    sys.modules["pytest"].register_assert_rewrite(
        "gpuwatch.testing.launcher", "gpuwatch.testing.lookup", "gpuwatch.testing.market", "gpuwatch.testing.ordered"
    )
