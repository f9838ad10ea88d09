"""The table of docs/providers/README.md agrees with each provider's `INFO`."""

from __future__ import annotations

import pytest

from gpuwatch import providers
from tests.checkout import ROOT

INDEX = (ROOT / "docs" / "providers" / "README.md").read_text(encoding="utf-8")
ROWS = {
    cells[0].strip("[]`").partition("`")[0]: cells
    for line in INDEX.splitlines()
    if line.startswith(("| `", "| [`"))
    for cells in [[cell.strip() for cell in line.strip("|").split("|")]]
}


def test_every_provider_is_in_the_index() -> None:
    assert set(ROWS) == set(providers.names()), "docs/providers/README.md has one row for each provider"
    assert list(ROWS)[1:] == sorted(set(ROWS) - {"vastai"})


@pytest.mark.parametrize("name", providers.names())
def test_a_row_says_what_the_provider_says_of_itself(name: str) -> None:
    info = providers.info(name)
    _, kinds, types, rents, key, about = ROWS[name]
    assert kinds == ", ".join(kind.value for kind in info.kinds)
    assert types == ", ".join("spot" if spot else "on demand" for spot in info.spots)
    assert rents == ("yes" if info.launches else "no")
    assert (info.extra is None) == ("extra" not in about)
    assert info.extra is None or f"extra `{info.extra}`" in about
    wanted = "needed" if not info.searches_without_key else "for renting" if info.launches else "none"
    if info.own_credentials is not None:
        wanted = info.own_credentials.removeprefix("the ")
    elif info.key_names and not info.launches and info.searches_without_key:
        wanted = "not needed"
    assert key == wanted
