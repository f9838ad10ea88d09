"""The conformance kit: what every provider keeps to, ours or a plugin's, as suites for pytest.

    from gpuwatch.testing import Bench
    from gpuwatch.testing.launcher import LauncherSuite
    from gpuwatch.testing.market import MarketSuite

    class TestMyMarket(MarketSuite):
        bench = Bench(name="mycloud", place=..., gpu="H100 SXM")

pytest is imported by the suites' own modules alone.
"""

from __future__ import annotations

import sys

from gpuwatch.testing.bench import Bench, StandIn

__all__ = ["Bench", "StandIn"]

if "pytest" in sys.modules:  # a failed assertion of the suites shows its values, as one of a test file does
    sys.modules["pytest"].register_assert_rewrite("gpuwatch.testing.launcher", "gpuwatch.testing.market")
