"""A provider is one file and a channel is one file: `init`, the schema, `doctor` and the help read them from it."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import gpuwatch
from gpuwatch import notifiers, providers
from gpuwatch.cli import Exit, run
from tests.plugins.conftest import Beside
from tests.plugins.packages import CHANNEL, provider_source


@pytest.fixture(autouse=True)
def _installed(beside: Beside, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = provider_source("acme", extra='template="[providers.acme]                  # Acme, for everybody\\n"')
    beside("acme", {"acme_gpus": source}, {"gpuwatch.providers": {"acme": "acme_gpus"}})
    beside("pager", {"pager_channel": CHANNEL}, {"gpuwatch.notifiers": {"pager": "pager_channel"}})
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))


def test_init_writes_the_sections_that_they_declare(tmp_path: Path) -> None:
    assert run(["init", "--full"]) == Exit.DONE
    text = (tmp_path / "gpuwatch.toml").read_text()
    assert "[providers.acme]                  # Acme, for everybody" in text
    assert "# [notify.pager]\n# # secret, prefer the environment: GPUWATCH_NOTIFY__PAGER__TOKEN" in text
    assert "# [notify.telegram]\n# chat_id = 123456789" in text


def test_the_schema_knows_their_keys(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["config", "schema"]) == Exit.DONE
    schema = json.loads(capsys.readouterr().out)
    text = json.dumps(schema)
    assert "The pager's token." in text
    assert "acme" in schema["properties"]["providers"]["properties"]


def test_doctor_checks_them(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("GPUWATCH_NOTIFY__PAGER__TOKEN", "pager-token-123")
    monkeypatch.setenv("GPUWATCH_PROVIDERS__ACME__ENABLED", "true")
    monkeypatch.setenv("GPUWATCH_PROVIDERS__VASTAI__ENABLED", "false")
    run(["doctor", "--json"])
    areas = {finding["area"] for finding in json.loads(capsys.readouterr().out)}
    assert "alerts by pager" in areas
    assert any("acme" in area for area in areas)


@pytest.mark.parametrize(("command", "name"), [("notify", "pager"), ("providers", "acme")])
def test_the_help_names_them(command: str, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([command, "--help"]) == Exit.DONE
    assert name in capsys.readouterr().out


OWN_CHECKS = """
from gpuwatch.plugin_api import Finding


def doctor(settings, http):
    yield Finding(area=settings.name, state="note", text="a check of its own")
    raise OSError("secret-of-the-plugin")
"""


def test_doctor_runs_the_checks_that_they_declare_and_survives_them(
    beside: Beside, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    source = OWN_CHECKS + provider_source("careful", extra="doctor=doctor")
    beside("careful", {"careful_gpus": source}, {"gpuwatch.providers": {"careful": "careful_gpus"}})
    monkeypatch.setenv("GPUWATCH_PROVIDERS__CAREFUL__ENABLED", "true")
    monkeypatch.setenv("GPUWATCH_PROVIDERS__VASTAI__ENABLED", "false")
    run(["doctor", "--json"])
    texts = [one["text"] for one in json.loads(capsys.readouterr().out) if one["area"] == "careful"]
    assert texts[-2:] == ["a check of its own", "its self-check failed (OSError)"]


# Files that may name a built-in one: examples, the demo, sellers' spellings at other markets, and two that match a
# channel's name by chance: Telegram's way to send updates, and a vendor's command that fetches a job's inputs.
EXAMPLES = {
    "bootstrap/service.py",
    "daemon/tasks.py",
    "domain/jobs/run_plan.py",
    "web/application.py",
    "app/setup/demo.py",
    "app/setup/first_watch/first_steps.py",
    "app/setup/demo_jobs.py",
    "cli/market/providers.py",
    "storage/history/lake/lake_schema.py",
    "cli/setup/help_commands.py",
    "cli/launches/rent.py",
    "cli/market/offers.py",
    "domain/market/resold.py",
    "settings/show.py",
}
# Built-in ones themselves (some sell what others have), their chats, and the emulator, which is one of vast.ai.
_THEMSELVES = re.compile(r"(providers|notifiers)/(?!toolkit)|emulator/|chat/\w+/")


def test_nothing_else_names_a_built_in_provider_or_channel() -> None:
    home = Path(gpuwatch.__file__).parent
    named = re.compile(rf"(?<![\w./-])({'|'.join((*providers.names(), *notifiers.names()))})(?![\w/-])")
    places = {path.relative_to(home).as_posix(): path for path in home.rglob("*.py")}
    others = {place: path for place, path in places.items() if not _THEMSELVES.match(place)}
    assert {place for place, path in others.items() if any(map(named.search, _texts(path)))} == EXAMPLES


def _texts(path: Path) -> Iterator[str]:
    """Return the texts and imports of a module, without its docstrings."""
    tree = ast.parse(path.read_text())
    docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
            yield node.value
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("gpuwatch."):
            yield (node.module or "").replace(".", " ")
