"""The name of a provider as its vendor spells it."""

from __future__ import annotations

from gpuwatch import providers
from gpuwatch.domain.market.offer import clean


def provider_title(name: str) -> str:
    """Return "vast.ai" for "vastai"; of a provider that is not installed any more, its name."""
    return providers.info(name).title if name in providers.names() else clean(name)
