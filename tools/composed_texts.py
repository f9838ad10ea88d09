"""Texts that the program composes in English and stores or reports: f-strings and plain texts of some modules.

`gpuwatch.language.translate_composed` recognises them when they are shown, so that nothing has to mark them where they
are made. Here they are found in the syntax trees: an f-string becomes a text with named fields.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

# Modules whose texts reach a page, an alert or a chat without a mark, and those below them that do not.
FOLDERS = (
    "domain/launches", "domain/history/past_lows.py", "domain/market/offer.py",
    "domain/jobs/pilot_checks.py", "domain/watches/computed_limits.py", "domain/watches/match.py",
    "storage/launches/launch_admission.py", "storage/launches/launch_repository.py", "engine/launches",
    "daemon/task_progress.py", "engine/alerts/launch_alerts.py", "engine/alerts/offer_alerts.py",
    "engine/watches/gather.py",
    "engine/jobs/job_queue.py", "engine/jobs/job_runner.py", "engine/jobs/run_finisher.py",
    "engine/jobs/run_monitor.py", "domain/plan/job_hours.py", "domain/plan/throughput.py",
)  # fmt: skip
# … and whose errors do, too.
WITH_ERRORS = (
    "app/history/past_prices.py",
    "chat", "web/page.py", "web/request_guard.py", "web/security", "web/login.py", "app/alerts", "app/jobs",
    "app/launches", "app/watches", "app/owner_audit.py",
    # what is wrong with a value of the settings
    "settings/validate.py", "settings/watch_rules.py", "settings/settings_errors.py", "settings/model.py",
    "settings/interpolation.py", "domain/setup", "domain/watches/expression.py", "domain/watches/launch_spec.py",
    "domain/watches/launch_text.py", "domain/watches/orchestrator_task.py", "domain/watches/watch_fields.py",
    "domain/watches/watch_job_schema.py", "domain/watches/windows.py", "domain/market/gpu_names.py",
    "domain/market/places.py",
    # … with a plan or a first step, and what an owner did
    "domain/plan/job_total.py",
    "app/setup/first_watch/first_steps.py", "app/setup/first_watch/env_file.py", "app/setup/first_watch/setting_up.py",
    "app/setup/sharing", "app/setup/hosts.py", "app/market/avoided_machines.py", "web/watches/edit_pages.py",
    "web/plan/plan_page.py", "web/now/first_run.py",
)  # fmt: skip
# … of whose texts only the errors do.
ONLY_ERRORS = (
    "domain/plan/architectures/language_models.py", "domain/plan/figures.py", "domain/plan/memory_need.py",
    "domain/plan/workload.py", "settings/plugin_options.py",
)  # fmt: skip
EXCLUDED = frozenset({  # the log, the terminal, programs; and what is marked itself
    "charge_comparison.py", "launch_commands.py", "launch_orders.py", "launch_record.py", "poller.py", "updates.py",
    "telegram_webhook.py", "sender.py", "chat.py", "interface.py", "job_new.py", "job_simulate.py", "job_handover.py",
    "accounts.py", "take_over.py", "agent_watch.py", "agent_requests.py", "check.py", "handover.py", "refusal_words.py",
})  # fmt: skip
OTHER = frozenset({  # names of threads and tasks, parts of commands
    "launch {provider}", "keeper {launch_id}", "{job_id} copies", "renting jobs", "gpuwatch watches resume {quote}",
    # what the words of pydantic are replaced in
    "Value error, ", "Input should be", "String should have", "greater than or equal to", "at least",
    "less than or equal to", "at most", "greater than", "less than", "expected a number of \\1",
    "expected a number \\1",
    "[providers.{provider}] and its key", "no-cache, private", "Bearer realm=\"gpuwatch\"",
})  # fmt: skip
_MARKED = frozenset({"", "translate", "translate_plural"})  # collected as every text with a mark; "" is `_`
_WORDS = re.compile(r"[a-z]{2,}[,;:]? [a-z$]", re.IGNORECASE)
_WORD_AND_FIELD = re.compile(r"[a-z]{2,}", re.IGNORECASE)
_FIELD = re.compile(r"\{[^{}]*\}")


def composed_texts(package: Path) -> Iterator[tuple[str, str]]:
    """Yield file and text."""
    for folder in (*FOLDERS, *WITH_ERRORS, *ONLY_ERRORS):
        root = package / folder
        for path in [root] if root.suffix else sorted(root.rglob("*.py")):
            if path.name not in EXCLUDED:
                tree = ast.parse(path.read_text(encoding="utf-8"))
                roots = (
                    [one for one in ast.walk(tree) if isinstance(one, ast.Raise)] if folder in ONLY_ERRORS else [tree]
                )
                for text in (text for one in roots for text in _texts(one, folder not in FOLDERS)):
                    yield f"gpuwatch/{path.relative_to(package).as_posix()}", text


def counted_nouns(package: Path) -> Iterator[tuple[str, tuple[str, str]]]:
    """Yield file, and singular and plural of what `count_text` counts."""
    for path in sorted(package.rglob("*.py")):
        source = path.read_text(encoding="utf-8")
        for node in ast.walk(ast.parse(source)) if "count_text(" in source else ():
            if isinstance(node, ast.Call) and _name(node.func) == "count_text":
                words = [one.value for one in node.args[1:] if isinstance(one, ast.Constant)]
                if words:
                    forms = f"{{count}} {words[0]}", f"{{count}} {words[1] if len(words) > 1 else words[0] + 's'}"
                    yield f"gpuwatch/{path.relative_to(package).as_posix()}", forms


def _texts(node: ast.AST, with_errors: bool) -> Iterator[str]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Assert | ast.arg) or (isinstance(child, ast.Raise) and not with_errors):
            continue
        if _is_other(child):
            continue
        if isinstance(child, ast.JoinedStr):
            yield from filter(_is_text, [_template(child)])
            yield from (
                text
                for part in child.values
                if isinstance(part, ast.FormattedValue)
                for text in _texts(part, with_errors)
            )
        elif isinstance(child, ast.Constant):
            yield from filter(_is_text, [child.value] if isinstance(child.value, str) else [])
        else:
            yield from _texts(child, with_errors)


def _is_other(node: ast.AST) -> bool:
    """A docstring, a record of the log, the name of a thread or task, an error, a text with a mark."""
    if isinstance(node, ast.FunctionDef):
        return node.name == "__repr__"
    if isinstance(node, ast.Expr):
        return isinstance(node.value, ast.Constant)
    if isinstance(node, ast.keyword):
        return node.arg == "name"
    if isinstance(node, ast.Assign):
        return _name(node.targets[0]) == "allowed"
    if isinstance(node, ast.Subscript):  # an annotation
        return _name(node.value) == "annotated"
    return isinstance(node, ast.Call) and (
        (isinstance(node.func, ast.Attribute) and isinstance(node.func.value, ast.Name) and node.func.value.id == "log")
        or _name(node.func)
        in {"require", "failpoint", "StoreError", "count_text", "compile", "getLogger", "Meta", "about", *_MARKED}
    )


def _is_text(text: str) -> bool:
    if text in OTHER or "[a-z" in text or text.startswith("gpuwatch "):
        return False
    shape = _WORD_AND_FIELD if "{" in text and " " in text else _WORDS
    return shape.search(_FIELD.sub("", text)) is not None


def _template(node: ast.JoinedStr) -> str:
    text, seen = "", Counter[str]()
    for part in node.values:
        if isinstance(part, ast.FormattedValue):
            name = _name(part.value)
            seen[name] += 1
            text += f"{{{name}{seen[name] if seen[name] > 1 else ''}}}"
        elif isinstance(part, ast.Constant):
            text += str(part.value)
    return text


def _name(node: ast.AST) -> str:
    """A field is called like its value."""
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name.strip("_").lower()
        case ast.Call(func=inner) | ast.Subscript(value=inner) | ast.Await(value=inner):
            return _name(inner)
    return "value"
