"""The declarations of all alerts: each text gets the fields that it names, and each kind is documented."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from datetime import timedelta
from importlib import import_module
from pathlib import Path
from string import Formatter

import pytest

from gpuwatch.domain.alerts.alert import KEY_LENGTH, AlertKind, AlertSpec, Severity
from gpuwatch.testing.suite import case
from tests.builders import NOON

ROOT = Path(__file__).parents[3]
ABOUT_MONEY = ("launch_texts", "guard_texts", "kept_texts", "interruption_texts", "job_texts", "series_texts")
TEXTS = sorted((ROOT / "gpuwatch" / "domain" / "alerts").glob("*_texts.py"))
CATALOGUE: dict[str, AlertSpec] = {
    f"{path.stem}.{name}": spec
    for path in TEXTS
    for name, spec in vars(import_module(f"gpuwatch.domain.alerts.{path.stem}")).items()
    if isinstance(spec, AlertSpec)
}
# `AlertSpec` itself, `LaunchAlerts`, `job_alert` and the keeper fill these in
COMMON = {"now", "subject", "watch", "launch", "provider", "label", "instance", "state", "price_step", "ten_minutes"}
COMMON |= {"job", "job_id", "run", "end", "advice", "kept_until", "disk_day", "start_minutes", "kept_since"}


def fields(spec: AlertSpec) -> set[str]:
    sentences = (text for one in (spec.why, spec.did) for text in ([one] if isinstance(one, str) else one))
    lines = [
        spec.headline,
        spec.once,
        *sentences,
        *spec.can_do,
        *(text for fact in spec.facts for text in fact),
    ]
    names = (name for line in lines for _, name, _, _ in Formatter().parse(line) if name)
    return {name.partition(".")[0] for name in names}


def _uses() -> Iterator[tuple[str, str, set[str]]]:
    """Yield (where, a declaration, the keywords of the calls beside it) for each function that names a declaration."""
    for path in sorted((ROOT / "gpuwatch").rglob("*.py")):
        source = path.read_text(encoding="utf-8")
        if "domain.alerts" not in source or path in TEXTS:
            continue
        tree = ast.parse(source)
        origin = {
            alias.asname or alias.name: (node.module or "").rpartition(".")[2]
            for node in ast.walk(tree)
            if isinstance(node, ast.ImportFrom)
            for alias in node.names
        }
        modules = {
            alias.asname or alias.name: alias.name
            for node in ast.walk(tree)
            if isinstance(node, ast.ImportFrom)
            for alias in node.names
            if alias.name.endswith("_texts")
        }
        functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
        passed_on = set[str]().union(
            *(_keywords(one) for one in functions if any(a.arg == "spec" for a in one.args.args))
        )
        for function in (*functions, tree):
            nodes = ast.walk(function) if function is not tree else _outside_functions(tree)
            given = _keywords(function) | _keywords_of_helpers(function, functions) | passed_on
            for node in nodes:
                name = None
                if isinstance(node, ast.Name) and f"{origin.get(node.id)}.{node.id}" in CATALOGUE:
                    name = f"{origin[node.id]}.{node.id}"
                elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                    name = f"{modules.get(node.value.id)}.{node.attr}"
                if name in CATALOGUE:
                    yield str(path.relative_to(ROOT)), name, given


def _outside_functions(tree: ast.Module) -> Iterator[ast.AST]:
    for statement in tree.body:
        if isinstance(statement, ast.Assign | ast.AnnAssign):
            yield from ast.walk(statement)


def _keywords_of_helpers(node: ast.AST, functions: list[ast.FunctionDef]) -> set[str]:
    """Return those of the functions of the module whose results it passes on: `**figures(…)`."""
    calls = (one for one in ast.walk(node) if isinstance(one, ast.Call))
    passed_on = (keyword.value for call in calls for keyword in call.keywords if keyword.arg is None)
    names = {one.func.id for one in passed_on if isinstance(one, ast.Call) and isinstance(one.func, ast.Name)}
    return set[str]().union(*(_keywords(one) for one in functions if one.name in names))


def _keywords(node: ast.AST) -> set[str]:
    """Return the names of all keyword arguments, and the keys of dictionaries that may be passed as such."""
    nodes = list(ast.walk(node))
    keywords = {keyword.arg for call in nodes if isinstance(call, ast.Call) for keyword in call.keywords}
    keys = {
        key.value for one in nodes if isinstance(one, ast.Dict) for key in one.keys if isinstance(key, ast.Constant)
    }
    return {name for name in keywords | keys if isinstance(name, str)}


@pytest.fixture(scope="module")
def uses() -> dict[tuple[str, str], list[set[str]]]:
    """(where, a declaration) → the keywords of each call: seconds of parsing, which collection must not take."""
    found: dict[tuple[str, str], list[set[str]]] = {}
    for where, name, given in _uses():
        found.setdefault((where, name), []).append(given)
    return found


def test_who_sends_an_alert_gives_every_field_that_its_text_names(
    uses: dict[tuple[str, str], list[set[str]]],
) -> None:
    for (where, name), calls in sorted(uses.items()):
        with case((where, name)):
            assert any(fields(CATALOGUE[name]) <= {*given, *COMMON} for given in calls)


def test_every_declaration_is_sent_by_somebody(uses: dict[tuple[str, str], list[set[str]]]) -> None:
    resolved = {id(spec.resolved) for spec in CATALOGUE.values()}
    sent = {name for _, name in uses}
    assert {name for name, spec in CATALOGUE.items() if id(spec) not in resolved} <= sent
    assert sent <= set(CATALOGUE)


def test_no_two_declarations_share_a_key() -> None:
    """But those that are the same event to their owner: of one launch, or of one run of a job."""
    of_launches = ("held", "returned", "other-account", "slow-stop")
    alike = {*(f"{key}:{{launch}}:" for key in of_launches), "job:{job_id}:{run}:finished", "hook:"}
    alike |= {"job:{job_id}:{run}:failed", "job:{job_id}:{run}:stopped", "increase:", "{condition}:", "interruption:"}
    keys = [spec.once for spec in CATALOGUE.values() if spec.once and not spec.once.startswith(tuple(alike))]
    assert len(set(keys)) == len(keys)


def test_what_says_an_end_is_of_the_kind_recovered() -> None:
    assert {spec.resolved.kind for spec in CATALOGUE.values() if spec.resolved is not None} == {AlertKind.RECOVERED}


def test_a_key_fits_its_column() -> None:
    spec = AlertSpec(kind=AlertKind.RENT, once="waste:{what}", headline="{what}")
    assert len(spec.key(NOON, what="x" * 300)) == KEY_LENGTH


def test_a_line_that_says_nothing_is_left_out() -> None:
    spec = AlertSpec(kind=AlertKind.RENT, headline="a", facts=(("Bid", "{bid}"),), can_do=("{hint}", "See it"))
    alert = spec.alert("x", NOON, bid="", hint="")
    assert (alert.facts, alert.can_do) == ((), ("See it",))


def test_a_line_or_a_sentence_whose_value_is_unknown_is_left_out() -> None:
    spec = AlertSpec(
        kind=AlertKind.RENT,
        headline="a",
        facts=(("Bid", "of {bid}"),),
        why=("It is so.", "Seen: {seen}."),
        can_do=("{x}",),
    )
    alert = spec.alert("x", NOON, bid=None, seen=None, x=None)
    assert (alert.facts, alert.why, alert.can_do) == ((), "It is so.", ())
    assert spec.alert("x", NOON, bid=None, seen="now", x=None).why == "It is so. Seen: now."


def test_an_alert_may_live_longer_than_its_kind() -> None:
    spec = AlertSpec(kind=AlertKind.MATCH, lifetime=timedelta(days=1), headline="a")
    assert spec.outbox("x", NOON).expires_at == NOON + timedelta(days=1)
    assert spec.outbox("x", NOON, severity=Severity.CRITICAL).expires_at == NOON + timedelta(days=7)


def test_values_with_braces_stay_as_they_are() -> None:
    """A marketplace's text is a value, never a text with fields."""
    spec = AlertSpec(kind=AlertKind.DRIFT, headline="{error}")
    assert spec.alert("x", NOON, error="{now} {missing}").headline == "{now} {missing}"


def test_the_documents_table_names_every_kind_and_its_severity() -> None:
    page = (ROOT / "docs" / "alerts.md").read_text(encoding="utf-8")
    table = page.partition("| kind | what it is about | severity |")[2].partition("\n\n")[0]
    rows = re.findall(r"^\| (`[^|]+) \| [^|]+ \| ([^|]+) \|$", table, re.MULTILINE)
    stated = {kind: severity for kinds, severity in rows for kind in re.findall(r"`(\w+)`", kinds)}
    assert {kind.value for kind in AlertKind} <= set(stated)
    for kind in AlertKind:
        assert kind.rules.severity.value in stated[kind.value]


def test_an_owner_finds_the_words_of_an_alert_about_money_in_its_page() -> None:
    """Whoever gets one at night looks for its headline."""
    page = (ROOT / "docs" / "alerts.md").read_text(encoding="utf-8")
    codes = (code for row in re.findall(r"(?m)^\| ([^|]+) \|", page) for code in re.findall(r"`([^`]+)`", row))
    shown = {text for code in codes for text in _pieces(code, r"… budget|…|\d+:\d+ UTC|(?<!to )\b\d+")}
    wanted = {
        name: max(_pieces(spec.headline, r"\{[^{}]*\}"), key=len)
        for name, spec in CATALOGUE.items()
        if name.partition(".")[0] in ABOUT_MONEY
    }
    assert len(wanted) > 90
    assert {name: text for name, text in wanted.items() if text and text not in shown} == {}


def _pieces(text: str, between: str) -> list[str]:
    return [piece.strip(' :;,.()"%').removeprefix("gpuwatch ") for piece in re.split(between, text)]
