"""What every provider's adapter is made of: what it says of itself, how it asks, what it may believe, how it answers.

An adapter, ours or a plugin's, needs this package and the ports, and nothing else of gpuwatch.
"""

from __future__ import annotations

from gpuwatch.ports.declarations import (
    Adapter,
    Billing,
    OptionSpec,
    ProviderInfo,
    Tools,
    web_address,
)

__all__ = ["Adapter", "Billing", "OptionSpec", "ProviderInfo", "Tools", "web_address"]
