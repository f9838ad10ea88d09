"""The language of what a person reads on a page, in an alert or in a chat: English, or gettext's texts in `locale/`.

Sources are written in English. `translate` returns the text in the language of the context, which a request or a
delivery sets by `use_language`; everywhere else it is English, which loads nothing: terminal, JSON, log and metrics.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

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


# --- texts that were composed in English, such as stored ones ---------------------------------------------------------

DURATION_UNITS = (mark_text("{count} d"), mark_text("{count} h"), mark_text("{count} min"), mark_text("{count} s"))
# What these fields hold is a name or somebody's own text, whatever it looks like.
_NAMES = frozenset({
    "account", "candidate", "command", "event", "folder", "gpu", "gpu_count", "host", "instance", "instance_id",
    "item", "job", "key", "label", "launch", "launch_id", "machine", "machine_id", "name", "new_watch",
    "names", "new_watches", "note", "offer", "offer_id", "option", "other", "output", "owner", "place", "previous_name",
    "provider", "provider2", "provider_there", "quote", "seller", "subject", "user", "watch", "watches",
})  # fmt: skip
_FIELD = re.compile(r"\{(\w*)([^{}]*)\}")
_LETTERS = re.compile(r"[^\W\d_]")
_LATIN = re.compile(r"[A-Za-z]")
_NUMBER = r"[-+−]?[\d.,]*\d"
_SENTENCE_END = re.compile(r"(?<=[.!?]) ")
_SEPARATORS = ("; ", ": ", ", ", " · ", " (", " = ")
_DURATION = re.compile(r"(?=\d)(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:([\d.]+)s)?")
_RATE = re.compile(r"(\$[\d.,]+)(/h|/GPU-h)\b")
_OR = mark_text("or")
_CHOICE = re.compile(r"('[^']*'|[A-Z]\S*)(( or |, )('[^']*'|[A-Z]\S*))*( or )('[^']*'|[A-Z]\S*)")  # names alone
# What a text adds for the terminal and for programs: a setting, a reason or a command in brackets, such as
# "(max_active = 1)" and "(first_match)", and the command that helps, at the end of a sentence.
_SETTING = r"(?:\[[\w.]+\] \w+|[a-z]+(?:_[a-z0-9]+)+|launch(?:\.\w+)+)"
_ASIDE = re.compile(
    rf" \((?:{_SETTING}(?: = [^():]*| (?:in|в) \[[^()]*)?"
    r"|[a-z][\w.]{2,} = [^():]*|cheaper|restocked|holding|gpuwatch [^()]*)\)"
)
_COMMAND = re.compile(
    r"[;,] (?:[\w ,'-]+: |run |see |with |см\.:? |выполните )*gpuwatch "
    r"(?:launches|approvals|jobs|watches|check|alerts|providers|doctor|run|init|store|config|service|plan|history|offers|costs|status|web)\b[^;]*$"
)
# settings that an error or a stored reason names within a sentence
_IN_WORDS = {
    "max_runtime": "longest runtime", "max_duration": "longest runtime", "max_price": "limit", "max_usd": "cost limit",
    "max_price_cap": "highest limit", "dry_run = true": "dry run", "depends_on": "what it depends on",
    "self_destruct": "its own end",
}  # fmt: skip
_SETTING_WORD = re.compile(rf"\b(?:{'|'.join(sorted(_IN_WORDS, key=len, reverse=True))})\b(?! =)")
_MOST_LENGTH = 1000  # of a composed text; longer ones are somebody else's
_MANY_LETTERS = 10
_SHORT_VALUE = re.compile(r"\S*|[^a-z]*", re.DOTALL)
_NAME_WORDS = 4  # of a name at most
_BEGINS = 2  # characters that a known beginning counts more
_LEAST_LETTERS = 4  # of a pattern, outside its fields: fewer would match anything


class _TextPattern(NamedTuple):
    """A text with fields, which recognises its own results."""

    regex: re.Pattern[str]
    fields: tuple[str, ...]  # as written, such as "{count:,}"
    literal: str  # in each of its results
    is_short: bool  # it has so few letters that it could take a host's sentence for a value
    one: str
    many: str | None  # None: it has no plural


def translate_composed(text: str, *, with_commands: bool = False) -> str:
    """Return a text that was composed in English for its owner to read, in the language of the context.

    Names of settings and reasons in brackets, and commands at the end, are for the terminal: they are left out, and
    other names of settings get words.

    Alerts, the reasons of ends and refusals, and events are stored in English, so that a store has one language and
    each reader his own. They are recognised by the texts that they were made of, whole, by sentences, or by parts;
    what is not recognised, such as the words of a host, stays as it is.

    Args:
        with_commands: keep the commands at the end: the text is what the reader can do.
    """
    language = _language.get()
    if not text or len(text) > _MOST_LENGTH:
        return text
    if language == ENGLISH:
        text = _SETTING_WORD.sub(lambda setting: _IN_WORDS[setting[0]], text)
    else:
        text = _recognised(language, text) or _composed(language, _without_asides(text, with_commands))
    return _without_asides(text, with_commands)


def _without_asides(text: str, with_commands: bool) -> str:
    plain = _ASIDE.sub("", text)
    return plain if with_commands else _COMMAND.sub("", plain)


@lru_cache(maxsize=4096)
def _composed(language: str, text: str) -> str:
    if not _LETTERS.search(text):
        return text
    whole = _recognised(language, text) or _duration(language, text)
    if whole is not None:
        return whole
    if _CHOICE.fullmatch(text):
        return text.replace(" or ", f" {_catalogue(language).gettext(_OR)} ")
    sentences = _SENTENCE_END.split(text)
    if len(sentences) > 1:
        return _by_sentences(language, sentences)
    splits = [(separator, text.split(separator)) for separator in _SEPARATORS if separator in text]
    if splits:  # by the separator that leaves the least in English
        joined = (separator.join(_composed(language, part) for part in parts) for separator, parts in splits)
        return min(joined, key=lambda one: len(_LATIN.findall(one)))
    if (priced := _RATE.sub(lambda rate: _rate(language, rate), text)) != text:
        return priced
    inner = text.rstrip(".)")
    return _composed(language, inner) + text[len(inner) :] if inner != text else text


def _duration(language: str, text: str) -> str | None:
    """Translate what `format_duration` writes: 1h30m."""
    found = _DURATION.fullmatch(text)
    if found is None:
        return None
    catalogue = _catalogue(language)
    shown = [
        catalogue.gettext(unit).format(count=count)
        for unit, count in zip(DURATION_UNITS, found.groups(), strict=True)
        if count
    ]
    return " ".join(shown)


def _rate(language: str, rate: re.Match[str]) -> str:
    return rate[1] + _catalogue(language).gettext(rate[2])


def _by_sentences(language: str, sentences: list[str]) -> str:
    """Translate the longest runs of sentences that are recognised."""
    done, at = [], 0
    while at < len(sentences):
        for end in range(len(sentences), at, -1):
            run = " ".join(sentences[at:end])
            found = _recognised(language, run)
            if found is None and end == at + 1:
                found = _composed(language, run)
            if found is not None:
                done.append(found)
                at = end
                break
    return " ".join(done)


def _recognised(language: str, text: str) -> str | None:
    catalogue = _catalogue(language)
    exact = catalogue.gettext(text)
    if exact != text:
        return exact
    for pattern in _patterns(language):
        match = pattern.regex.fullmatch(text) if pattern.literal in text else None
        if match and (not pattern.is_short or _has_known_values(language, pattern, match.groups())):
            return _refilled(language, pattern, match.groups())
    if text[:1].isupper():  # perhaps the first word of a message
        lower = _recognised(language, text[0].lower() + text[1:])
        return None if lower is None else lower[:1].upper() + lower[1:]
    return None


def _has_known_values(language: str, pattern: _TextPattern, values: tuple[str, ...]) -> bool:
    """Whether each value is short, a name, or a text of the catalogue itself."""
    return all(
        _SHORT_VALUE.fullmatch(value)
        or (field[1:-1].rpartition(".")[2] in _NAMES and len(value.split()) <= _NAME_WORDS)
        or _recognised(language, value) is not None
        for field, value in zip(pattern.fields, values, strict=True)
    )


def _refilled(language: str, pattern: _TextPattern, values: tuple[str, ...]) -> str:
    filled = dict(zip(pattern.fields, values, strict=True))
    catalogue = _catalogue(language)
    if pattern.many is None:
        template = catalogue.gettext(pattern.one)
    else:
        counted = next((value for field, value in filled.items() if field.startswith("{count")), "0")
        template = catalogue.ngettext(pattern.one, pattern.many, int(re.sub(r"\D", "", counted) or 0))

    def value(field: re.Match[str]) -> str:
        own = filled.get(field[0], field[0])
        return own if field[1] in _NAMES else _composed(language, own)

    return _FIELD.sub(value, template)


@cache
def _patterns(language: str) -> tuple[_TextPattern, ...]:
    """Return the patterns of a catalogue, the most specific first."""
    found = []
    for one, many in _message_ids(LOCALE / language / "LC_MESSAGES" / f"{DOMAIN}.mo"):
        for form in {one, many or one}:
            literals = _FIELD.sub("\0", form).split("\0")
            letters = len(_LETTERS.findall("".join(literals))) + form[:1].isupper()
            if len(literals) > 1 and letters >= _LEAST_LETTERS:
                known = sum(map(len, literals)) + _BEGINS * bool(literals[0])
                found.append((known, _text_pattern(form, literals, one, many)))
    return tuple(pattern for _, pattern in sorted(found, key=lambda one: -one[0]))


def _text_pattern(form: str, literals: list[str], one: str, many: str | None) -> _TextPattern:
    fields = list(_FIELD.finditer(form))
    regex = re.escape(literals[0])
    for field, literal in zip(fields, literals[1:], strict=True):
        is_number = field[1] == "count" or re.search(r":[\d,.]*[dfg%]$", field[2])
        regex += (f"({_NUMBER}%?)" if is_number else "(.*?)") + re.escape(literal)
    compiled = re.compile(regex, re.DOTALL)
    is_short = len(_LETTERS.findall("".join(literals))) < _MANY_LETTERS
    return _TextPattern(compiled, tuple(field[0] for field in fields), max(literals, key=len), is_short, one, many)


def _message_ids(path: Path) -> Iterator[tuple[str, str | None]]:
    """Yield the texts of a compiled catalogue, with their plurals; gettext keeps no list of them."""
    content = path.read_bytes()
    count, start = struct.unpack("<2I", content[8:16])
    for at in range(start, start + 8 * count, 8):
        length, offset = struct.unpack("<2I", content[at : at + 8])
        one, _, many = content[offset : offset + length].decode().partition("\0")
        if one:
            yield one, many or None
