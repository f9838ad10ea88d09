"""The language of what a person reads on a page, in an alert or in a chat: English, or gettext's texts in `locale/`.

Sources are written in English. `translate` returns the text in the language of the context, which a request or a
delivery sets by `use_language`; everywhere else it is English, which loads nothing: terminal, JSON, log and metrics.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gettext import NullTranslations

ENGLISH, AUTO = "en", "auto"
LANGUAGES = (ENGLISH, "ru")
DOMAIN = "gpuwatch"  # of gettext: the name of the catalogues
LOCALE = Path(__file__).with_name("locale")

_language: ContextVar[str] = ContextVar("language", default=ENGLISH)


@contextmanager
def use_language(language: str) -> Iterator[None]:
    """Translate into this language inside the block; "auto" and what has no catalogue: English."""
    before = _language.set(language if language in LANGUAGES else ENGLISH)
    try:
        yield
    finally:
        _language.reset(before)


def current_language() -> str:
    """Return the language of the context, such as "en"."""
    return _language.get()


def translate(text: str) -> str:
    """Return the text in the language of the context. Fill its fields afterwards."""
    language = _language.get()
    return text if language == ENGLISH or not text else _catalogue(language).gettext(text)


def translate_plural(one: str, many: str, count: int) -> str:
    """Return the text for this count in the language of the context. Fill its fields afterwards."""
    language = _language.get()
    if language == ENGLISH:
        return one if count == 1 else many
    return _catalogue(language).ngettext(one, many, count)


def mark_text(text: str) -> str:
    """Return the text as it is: `make texts` collects it, and who shows it calls `translate`."""
    return text


def preferred_language(accept: str) -> str:
    """Return the first language of an Accept-Language header that has a catalogue, by its weights; else English."""
    weighted: list[tuple[float, str]] = []
    for part in accept.split(","):
        tag, _, weight = part.partition(";")
        try:
            weighted.append((-float(weight.strip().removeprefix("q=") or 1), tag.strip().lower().split("-")[0]))
        except ValueError:
            continue
    ordered = [language for weight, language in sorted(weighted, key=lambda one: one[0]) if weight < 0]
    return next((language for language in ordered if language in LANGUAGES), ENGLISH)


@cache
def _catalogue(language: str) -> NullTranslations:
    from gettext import translation  # noqa: PLC0415 English needs none

    return translation(DOMAIN, LOCALE, [language])
