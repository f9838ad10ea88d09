"""Every page in Russian: no English sentence is left, in texts, labels and titles."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuwatch.emulator import Marketplace
from gpuwatch.web.page import pages
from tests.web.conftest import SETTINGS
from tests.web.forms import form_fields
from tests.web.page_texts import english_in
from tests.web.served import PAGE, Served, serving_settings, settings_in

_SETTINGS = f'language = "auto"\n{SETTINGS}'
_RUSSIAN = PAGE | {"Accept-Language": "ru"}
_OTHERS = (
    "/gpu/H100", "/watches/cheap", "/watches/cheap/edit", "/watches/cheap/pause", "/watches/cheap/silence", "/login",
    "/nowhere", "/costs?month=x", "/launches/abcdefghjkmn",
)  # fmt: skip
# Pages that show keys and comments of the file, and records of the log.
_UNTRANSLATED = frozenset({"/log", "/settings"})


@pytest.fixture(scope="module")
def russian(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("russian")
    with Marketplace(seed=3, key="a-secret-key-0123456789", size=10) as market:
        settings = settings_in(folder, _SETTINGS.format(url=market.url))
        with serving_settings(settings, folder) as web:
            yield web


def _addresses() -> list[str]:
    return [page.path for page in pages() if "{" not in page.path and page.path not in _UNTRANSLATED] + list(_OTHERS)


@pytest.mark.parametrize("is_logged_in", [False, True])
def test_no_page_has_an_english_sentence(russian: Served, is_logged_in: bool) -> None:
    if is_logged_in:
        russian.log_in()
    left = [(path, text) for path in _addresses() for text in english_in(_page(russian, path))]
    assert left == []


def _page(web: Served, path: str) -> str:
    answer = web.client.get(path, headers=_RUSSIAN)
    assert answer.status_code in {200, 303, 404, 422}, (path, answer.text)
    return answer.text


def test_no_page_without_a_store_has_an_english_sentence(tmp_path: Path) -> None:
    settings = settings_in(tmp_path, _SETTINGS.format(url="http://127.0.0.1:9"), has_store=False)
    with serving_settings(settings, tmp_path) as web:
        answer = web.client.get("/", headers=_RUSSIAN)
        assert (answer.status_code, english_in(answer.text)) == (503, [])


@pytest.mark.parametrize(
    "wrong",
    [
        {"f.max_price": "-1"}, {"f.max_price": "cheap"}, {"f.gpu": "H10O"}, {"f.gpu_count_from": "two"},
        {"f.min_reliability": "300"}, {"f.regions": "Atlantiss"}, {"f.launch.max_runtime": "never"},
        {"f.min_vram_gib": "-2"},
    ],
)  # fmt: skip
def test_a_wrong_value_is_refused_in_russian(russian: Served, wrong: dict[str, str]) -> None:
    token = russian.log_in()
    form = form_fields(_page(russian, "/watches/cheap/edit"), "/watches/save")
    assert wrong.keys() <= form.keys(), sorted(form)
    sent = {**form, "csrf_token": token, **wrong}
    answer = russian.client.post("/watches/preview", data=sent, headers=_RUSSIAN)
    assert 'aria-invalid="true"' in answer.text
    assert english_in(answer.text) == []


def test_english_pages_are_found(russian: Served) -> None:
    """The judge of these tests finds English."""
    assert english_in(russian.client.get("/login", headers=PAGE).text)
