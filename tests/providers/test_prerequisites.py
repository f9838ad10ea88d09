"""Every provider that rents declares what it wants before the first rent, and its page explains each."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from gpuwatch import providers
from gpuwatch.ports.prerequisites import PrerequisiteName

DOCS = Path(__file__).parents[2] / "docs"
RENTING = [name for name in providers.names() if providers.info(name).launches]


@pytest.mark.parametrize("name", RENTING)
def test_what_a_provider_declares_is_explained_where_it_says(name: str) -> None:
    declared = providers.info(name).prerequisites
    assert PrerequisiteName.CREDENTIALS in {one.name for one in declared}
    for one in declared:
        page, _, anchor = one.docs.partition("#")
        headings = re.findall(r"^#+ (.+)$", (DOCS / page).read_text(), re.MULTILINE)
        assert anchor in {re.sub(r"[^a-z0-9 -]", "", heading.lower()).replace(" ", "-") for heading in headings}
        assert one.about
