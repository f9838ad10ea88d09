"""Public price lists of many clouds, read by one adapter: each source is a declaration, built-in or the owner's.

source: the clouds' documents and public readers of their lists, read 2026-11; each declaration has the details.
"""

from __future__ import annotations

from pathlib import Path

from gpuwatch.domain.market.offer import OfferKind
from gpuwatch.ports import ProviderSettings
from gpuwatch.ports.declarations import Adapter, OptionSpec, ProviderInfo, Tools, web_address
from gpuwatch.ports.settings import Option


def _check_files(option: Option) -> None:
    """Check that the owner's declarations can be read. Raises ValueError with one line."""
    from gpuwatch.providers.pricelist.declaration import own_sources  # noqa: PLC0415 - only if there are such files

    own_sources(option)


INFO = ProviderInfo(
    name="pricelist",
    title="Public price lists",
    base_url="https://apexapps.oracle.com",  # of the first source; see docs/providers/pricelist.md
    searches_without_key=True,
    runs_images=False,
    kinds=(OfferKind.LISTED, OfferKind.LIVE, OfferKind.HISTORY),
    spots=(False, True),
    options=(
        OptionSpec(
            name="sources",
            kind="texts",
            about="Sources to read; default: all that list whole prices.",
            choices=tuple(sorted(path.stem for path in (Path(__file__).parent / "sources").glob("*.toml"))),
        ),
        OptionSpec(name="files", kind="texts", about="TOML files that declare your own sources.", check=_check_files),
        OptionSpec(
            name="dated",
            kind="texts",
            about="Price lists copied from a page on a given day, shown in addition; default: none.",
            choices=tuple(sorted(path.stem for path in (Path(__file__).parent / "dated").glob("*.toml"))),
        ),
        OptionSpec(
            name="rate_url",
            kind="text",
            about="Source of the exchange rates: the daily file of the European Central Bank, or one like it.",
            default="https://www.ecb.europa.eu/stats/eurofxref/eurofxref-daily.xml",
            check=web_address,
        ),
    ),
    poll_every_s=300.0,
    search_interval_s=1.0,  # between two requests to one source
)


def build(settings: ProviderSettings, tools: Tools) -> Adapter:
    """Build the adapter; no key is ever sent."""
    from gpuwatch.providers.pricelist.market import PriceLists  # noqa: PLC0415 - not for start-up

    return Adapter(name=INFO.name, info=INFO, market=PriceLists(settings, tools, INFO.base_url))
