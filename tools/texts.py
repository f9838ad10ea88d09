"""`make texts`: collect the texts that people see, bring each catalogue up to date, compile it; names what is missing.

Collected are the calls of `translate`, `translate_plural` and `mark_text` in Python (also as `_`), `_()` and
`{% trans %}` in templates, and every text of the declared alerts (`gpuwatch/domain/alerts/*_texts.py`) without a mark.
"""

from __future__ import annotations

import io
import re
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from typing import Any

import msgspec
from babel.messages.catalog import Catalog, Message
from babel.messages.extract import extract_from_dir
from babel.messages.mofile import write_mo
from babel.messages.pofile import read_po, write_po

from gpuwatch.daemon.task_progress import FaultKind
from gpuwatch.domain.jobs.job import JobState
from gpuwatch.domain.launches.launch import EndReason, InstanceCondition, LaunchState
from gpuwatch.domain.launches.life.owner_decisions import ApprovalState
from gpuwatch.domain.market.offer import OfferKind
from gpuwatch.language import DOMAIN, ENGLISH, LANGUAGES, LOCALE
from gpuwatch.settings.reference import watch_rows
from gpuwatch.web.watches.edit_texts import other_label
from tools.composed_texts import composed_texts, counted_nouns

PACKAGE = Path(__file__).parents[1] / "gpuwatch"
METHODS = [("**.py", "python"), ("web/templates/**.html", "jinja2"), ("notifiers/**.html", "jinja2")]
OPTIONS = {"**.html": {"trimmed": "true", "trim_blocks": "true", "lstrip_blocks": "true"}}
KEYWORDS: dict[str, Any] = {
    "_": None,
    "gettext": None,
    "ngettext": (1, 2),
    "translate": None,
    "translate_plural": (1, 2),
    "mark_text": None,
}
_CHANGING_HEADER = re.compile(
    rb'"(?:POT-Creation-Date|PO-Revision-Date|Generated-By|Last-Translator|Language-Team|Report-Msgid-Bugs-To)[^"]*"\n'
)
_EPOCH = datetime(2026, 1, 1, tzinfo=UTC)
_IS_TEXT = re.compile(r"[^\W\d_]")  # a letter, outside its fields


def po_path(language: str) -> Path:
    """Return the catalogue that people edit."""
    return LOCALE / language / "LC_MESSAGES" / f"{DOMAIN}.po"


def source_texts() -> Catalog:
    """Return the catalogue of all texts in the sources."""
    catalog = Catalog(project="gpuwatch", charset="utf-8", fuzzy=False)
    options = {pattern: OPTIONS["**.html"] for pattern, method in METHODS if method == "jinja2"}
    found = extract_from_dir(PACKAGE, METHODS, options, KEYWORDS, ("i18n:",), strip_comment_tags=True)
    for name, _line, text, comments, context in found:
        catalog.add(text, None, [(f"gpuwatch/{name}", 0)], auto_comments=comments, context=context)
    for name, text in (*declared_texts(), *composed_texts(PACKAGE)):
        if text not in catalog:
            catalog.add(text, None, [(name, 0)])
    for name, forms in counted_nouns(PACKAGE):
        catalog.add(forms, None, [(name, 0)])
    return catalog


def declared_texts() -> Iterator[tuple[str, str]]:
    """Yield file and text of every alert's declaration, of what stands beside the declarations, and of every end."""
    for kind in (EndReason, LaunchState, InstanceCondition, ApprovalState, JobState, OfferKind, FaultKind):
        for member in kind:
            yield f"{kind.__module__.replace('.', '/')}.py", member.value
    for row in watch_rows():  # the form of a watch explains its fields with them
        yield "gpuwatch/domain/watches/watch.py", row.text
        yield "gpuwatch/domain/watches/watch.py", other_label(".".join(row.path[1:]))
    for path in sorted((PACKAGE / "domain" / "alerts").glob("*_texts.py")):
        module = import_module(f"gpuwatch.domain.alerts.{path.stem}")
        for name, value in vars(module).items():
            if name.isupper():
                for text in _texts_in(value):
                    yield f"gpuwatch/domain/alerts/{path.name}", text


def _texts_in(value: Any) -> Iterator[str]:
    if type(value) is str:
        if _IS_TEXT.search(re.sub(r"\{[^}]*\}", "", value)):
            yield value
    elif isinstance(value, dict):
        yield from _texts_in(list(value.values()))
    elif isinstance(value, list | tuple):
        for one in value:
            yield from _texts_in(one)
    elif isinstance(value, msgspec.Struct):
        yield from _texts_in([getattr(value, name) for name in value.__struct_fields__ if name != "once"])


def updated(language: str, sources: Catalog) -> Catalog:
    """Return the catalogue of a language with exactly the texts of the sources; new ones are untranslated."""
    catalog = catalogue(language)
    catalog.update(sources, no_fuzzy_matching=True)
    catalog.obsolete.clear()
    return catalog


def po_bytes(catalog: Catalog) -> bytes:
    """Return the catalogue as people edit it: by text, with files and without lines, which change with every edit."""
    for message in catalog:
        message.locations = sorted({(name, 0) for name, _line in message.locations})
        message.flags.clear()  # they would guess the form of the fields
    buffer = io.BytesIO()
    write_po(buffer, catalog, width=120, sort_output=True, include_lineno=False, omit_header=False)
    return _CHANGING_HEADER.sub(b"", buffer.getvalue())


def mo_bytes(catalog: Catalog) -> bytes:
    """Return the catalogue as gettext reads it."""
    buffer = io.BytesIO()
    write_mo(buffer, catalog)
    return buffer.getvalue()


def catalogue(language: str) -> Catalog:
    """Return the committed catalogue."""
    with po_path(language).open("rb") as file:
        catalog = read_po(file, locale=language)
    catalog.creation_date = catalog.revision_date = _EPOCH  # equal sources, equal bytes
    return catalog


def compiled(language: str) -> bytes:
    """Return what the committed catalogue compiles to."""
    return mo_bytes(catalogue(language))


def untranslated(catalog: Catalog) -> list[str]:
    """Return the texts without a translation in every form."""
    plurals = catalog.num_plurals
    return [str(message.id) for message in catalog if message.id and not _is_translated(message, plurals)]


def _is_translated(message: Message, plurals: int) -> bool:
    if not message.pluralizable:
        return bool(message.string)
    return isinstance(message.string, tuple) and len(message.string) == plurals and all(message.string)


def main() -> None:
    """Write all catalogues."""
    sources = source_texts()
    for language in LANGUAGES:
        if language == ENGLISH:
            continue
        catalog = updated(language, sources)
        po_path(language).write_bytes(po_bytes(catalog))
        po_path(language).with_suffix(".mo").write_bytes(compiled(language))
        missing = untranslated(catalog)
        print(f"{language}: {len(catalog)} texts, {len(missing)} without a translation")
        for text in missing[: None if "--all" in sys.argv else 20]:
            print(f"  {text}")


if __name__ == "__main__":
    main()
