"""Languages: the catalogues hold what the sources say, and English needs none."""

from __future__ import annotations

import re
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from gpuwatch.language import (
    ENGLISH,
    LANGUAGES,
    current_language,
    preferred_language,
    translate,
    translate_composed,
    translate_plural,
    use_language,
)
from gpuwatch.web.page_templates import environment
from tests.web.served import PAGE, serving_settings, settings_in
from tools import texts

WEB = '[web]\nlisten = "127.0.0.1:0"\n'
each_translation = pytest.mark.parametrize("language", [one for one in LANGUAGES if one != ENGLISH])


def test_a_text_is_english_outside_a_block_and_in_another_thread() -> None:
    seen = []
    with use_language("ru"):
        thread = threading.Thread(target=lambda: seen.append(current_language()))
        thread.start()
        thread.join()
        assert (current_language(), translate("Why now")) == ("ru", "Почему сейчас")
    assert (seen, current_language(), translate("Why now")) == (["en"], "en", "Why now")


def test_the_name_of_a_gpu_with_small_letters_keeps_no_text_in_english() -> None:
    with use_language("ru"):
        shown = translate_composed("cheap: A100 PCIe 80GB × 1 at $0.81/GPU-h")
    assert shown == "cheap: A100 PCIe 80GB × 1 по $0.81/GPU-ч"


def test_auto_and_a_language_without_a_catalogue_are_english() -> None:
    for language in ("auto", "xx", ""):
        with use_language(language):
            assert current_language() == "en"


def test_english_loads_no_catalogue() -> None:
    program = (
        "import sys; from gpuwatch.language import translate, translate_plural as plural\n"
        "print(translate('Watches'), plural('one', 'many', 1), plural('one', 'many', 2), 'gettext' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=240, check=True)
    assert done.stdout.split() == ["Watches", "one", "many", "False"]


def test_the_browser_names_the_languages_in_its_order_of_weights() -> None:
    for accept, expected in {
        "": "en", "*": "en", "ru": "ru", "ru-RU,ru;q=0.9,en;q=0.8": "ru", "en-US,en;q=0.9,ru;q=0.8": "en",
        "de, ru;q=0.5, en;q=0.7": "en", "de,fr": "en", "ru;q=0, en": "en", "en;q=0.1, ru;q=0.2": "ru",
        "ru;q=x, en": "en", ",;,;q=": "en",
    }.items():  # fmt: skip
        assert preferred_language(accept) == expected, accept


def test_a_page_is_in_the_language_of_the_settings_or_of_the_browser(tmp_path: Path) -> None:
    """What programs read is English."""
    russian = PAGE | {"Accept-Language": "ru-RU, en;q=0.5"}
    for number, (language, headers, expected) in enumerate([
        ("en", russian, "en"), ("ru", PAGE, "ru"), ("auto", russian, "ru"), ("auto", PAGE, "en"),
    ]):  # fmt: skip
        folder = tmp_path / str(number)
        folder.mkdir()
        with serving_settings(settings_in(folder, f'language = "{language}"\n{WEB}'), folder) as web:
            answer = web.client.get("/", headers=headers)
            assert f'<html lang="{expected}"' in answer.text
            assert "Accept-Language" in answer.headers["Vary"]


def test_templates_translate_with_fields_and_escape_them() -> None:
    template = environment().from_string(
        "{{ _('Why now') }} {% trans count=3 %}50 % of {{ count }}{% pluralize %}50 % of {{ count }}{% endtrans %} "
        "{% trans name='<b>' %}Hello {{ name }}{% endtrans %}"
    )
    assert template.render() == "Why now 50 % of 3 Hello &lt;b&gt;"
    with use_language("ru"):
        assert template.render().startswith("Почему сейчас")


# --- catalogues -------------------------------------------------------------------------------------------------------
@each_translation
def test_a_catalogue_holds_every_text_of_the_sources_and_nothing_else(language: str) -> None:
    """Otherwise: make texts."""
    stored = texts.po_path(language).read_bytes()
    assert stored == texts.po_bytes(texts.updated(language, texts.source_texts()))


@each_translation
def test_a_catalogue_is_compiled(language: str) -> None:
    assert texts.po_path(language).with_suffix(".mo").read_bytes() == texts.compiled(language)


@each_translation
def test_a_translation_has_the_fields_of_its_text(language: str) -> None:
    for message in texts.catalogue(language):
        forms = [message.string] if isinstance(message.string, str) else message.string or ()
        sources = [message.id] if isinstance(message.id, str) else message.id
        wanted = {frozenset(_fields(source)) for source in sources}
        for form in filter(None, forms):
            assert frozenset(_fields(form)) in wanted, (message.id, form)


@each_translation
def test_a_command_that_a_page_leaves_out_in_english_is_left_out_in_its_language(language: str) -> None:
    kept, seen = [], 0
    for message in texts.catalogue(language):
        if not isinstance(message.id, str) or not isinstance(message.string, str):
            continue
        english, translated = (re.sub(r"\{[^{}]*\}", "7", text) for text in (message.id, message.string))
        if "gpuwatch" in english and "gpuwatch" not in translate_composed(english):
            seen += 1
            with use_language(language):
                kept += [translated] if "gpuwatch" in translate_composed(translated) else []
    assert (kept, seen > 10) == ([], True)


def _fields(text: str) -> list[str]:
    return re.findall(r"\{[^{}]*\}|%\(\w+\)s|</?\w+>", text)


# --- what stays English -----------------------------------------------------------------------------------------------
def test_terminal_and_json_do_not_change_with_the_language(tmp_path: Path) -> None:
    said = {}
    for language in ("en", "ru"):
        folder = tmp_path / language
        folder.mkdir()
        settings_in(folder, f'language = "{language}"\n[[watch]]\nname = "cheap"\ngpu = ["H100"]\nmax_price = 2.4\n')
        said[language] = [
            _said(folder, *command)
            for command in (["watches"], ["watches", "--json"], ["alerts", "--json"], ["launches"])
        ]
    assert said["ru"] == said["en"]
    assert any("cheap" in text for text in said["en"])


def _said(folder: Path, *command: str) -> str:
    env = {"HOME": str(folder), "PATH": "/usr/bin:/bin", "LANG": "ru_RU.UTF-8", "LANGUAGE": "ru"}
    done = subprocess.run(
        [sys.executable, "-m", "gpuwatch", *command],
        cwd=folder, env=env, capture_output=True, text=True, timeout=240, check=False,
    )  # fmt: skip
    return done.stdout + done.stderr.replace(str(folder), "")


def test_plural_forms_of_russian() -> None:
    with use_language("ru"):
        said = {
            count: translate_plural("{count} launch", "{count} launches", count).format(count=count)
            for count in (1, 2, 5, 11, 21, 22, 25, 111)
        }
    assert list(said.values()) == [
        "1 запуск", "2 запуска", "5 запусков", "11 запусков", "21 запуск", "22 запуска", "25 запусков", "111 запусков",
    ]  # fmt: skip


@each_translation
def test_a_catalogue_lacks_nothing(language: str) -> None:
    """Otherwise: make texts, and translate what it names."""
    assert texts.untranslated(texts.catalogue(language)) == []
