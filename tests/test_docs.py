"""The documents name exactly the existing settings and commands; their links work."""

from __future__ import annotations

import re
from decimal import Decimal
from pathlib import Path

import pytest

from gpuwatch import providers
from gpuwatch.cli.base import GroupEntry
from gpuwatch.cli.commands import ALIASES, SECTIONS, SHORT_NAMES
from gpuwatch.secret import Secret
from gpuwatch.settings import load
from gpuwatch.settings.reference import SettingRow, setting_rows, watch_rows
from tests.checkout import ROOT, TESTS
from tests.setting_lines import docs_line, general_rows, with_missing_rows, with_missing_variables
from tools import reference_pages

EXAMPLE = (ROOT / ".env.example").read_text(encoding="utf-8")
DOCS = (ROOT / "docs" / "settings.md").read_text(encoding="utf-8")
README = (ROOT / "README.md").read_text(encoding="utf-8")
OUR_OWN = {"README", "README.ru", "CHANGELOG"}  # have an order of their own
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
READ = [
    path for path in PAGES if path.parent.name != "decisions" and not (path.parent == ROOT and path.stem in OUR_OWN)
]
# what a page is good for: "After this page you can …", "Here you can look up …", "you know which …"
_GAIN = re.compile(r"\bAfter this page you\b|\b[Yy]ou (can|know|have)\b|вы сможете")
RUSSIAN = {
    "README.ru.md": ["README.md"],
    "docs/ru/start.md": ["docs/start.md", "docs/tutorial-alert.md", "docs/tutorial-rent.md"],
}
COMMANDS = {name: entry for section in SECTIONS.values() for name, entry in section.items()}
# Texts that name commands: the pages, what the program prints, what its files for a service say.
TEXTS = sorted(
    path
    for path in [*PAGES, *(one for folder in ("gpuwatch", "deploy", "examples") for one in (ROOT / folder).rglob("*"))]
    if path.suffix in {".md", ".py", ".html", ".toml", ".yml"} and path.name not in {"CHANGELOG.md", "commands.md"}
)
_TO_TYPE = re.compile(r"(?m)(`|<code>|^\$ |^)gpuwatch ([a-z]+(?:-[a-z]+)*)(?: ([a-z]+(?:-[a-z]+)*)\b)?")
_ADVISED = re.compile(r"(?:[:;(`>] ?|\b(?:run|with|see|or) )gpuwatch ([a-z]+(?:-[a-z]+)*)")
_VARIABLE = re.compile(r"^# ((?:GPUWATCH_|[A-Z]+_API_|[A-Z]+_CLIENT_|[A-Z]+_IAM_)[A-Z0-9_]+)=(.*)$", re.MULTILINE)

_PATH = re.compile(r"`(\w[^`\s=]*/[^`\s=]*|[\w.-]+\.(?:py|md|toml|csv))`")
_PLACEHOLDER = re.compile(r"(?<![A-Za-z])(?:NAME|NOUN|COMMAND|NNNN)(?![A-Za-z])")


def by_key(row: SettingRow) -> str:
    return row.key


@pytest.mark.parametrize("row", general_rows(), ids=by_key)
def test_every_setting_stands_in_the_example_with_its_default(row: SettingRow) -> None:
    line = next((value for name, value in _VARIABLE.findall(EXAMPLE) if name == row.variable), None)
    assert line is not None, f"make golden adds {row.variable} to .env.example"
    assert not row.default or line == row.default.strip('"')
    assert row.text in EXAMPLE


def test_the_example_names_no_variable_that_does_not_exist() -> None:
    known = {row.variable for row in setting_rows()} | {"GPUWATCH_CONFIG", "GPUWATCH_WATCH"}
    known |= {key for name in providers.names() for key in providers.info(name).key_names}
    named = {name for name, _ in _VARIABLE.findall(EXAMPLE)}
    assert named <= known
    assert {row.variable for row in general_rows()} <= named
    assert {key for name in providers.names() for key in providers.info(name).key_names} <= named


@pytest.mark.parametrize("row", [*general_rows(), *watch_rows()], ids=by_key)
def test_every_setting_stands_in_the_documents_with_its_default(row: SettingRow) -> None:
    assert docs_line(row) in DOCS, "make golden adds it"


def test_what_a_new_channel_needs_in_both_files_is_added() -> None:
    def without(text: str) -> str:
        gone = ("| `notify.apprise.", "# GPUWATCH_NOTIFY__APPRISE__")
        return "\n".join(line for line in text.splitlines() if not line.startswith(gone))

    rows, apprise = general_rows(), [row for row in general_rows() if row.path[:2] == ("notify", "apprise")]
    page = with_missing_rows(without(DOCS), [*rows, *watch_rows()]).splitlines()
    assert sorted(page) == sorted(DOCS.splitlines())
    added = with_missing_variables(without(EXAMPLE), rows)
    assert "\n# --- [notify.apprise]\n" in added
    assert {row.variable for row in apprise} <= {name for name, _ in _VARIABLE.findall(added)}
    assert with_missing_variables(EXAMPLE, rows) == EXAMPLE


@pytest.mark.parametrize("name", providers.names())
def test_every_provider_has_a_page_with_its_defaults_and_options(name: str) -> None:
    page = (ROOT / "docs" / "providers" / f"{name}.md").read_text(encoding="utf-8")
    for row in setting_rows():
        own = row.path[1:2] == (name,) and (row.path[2] == "options" or row.path[2] in {"base_url", "poll_every"})
        if own:
            key = ".".join(row.path[2:])
            assert f"| `{key}` | {f'`{row.default}`' if row.default else '–'} |" in page, (
                f"docs/providers/{name}.md: a row for {key}"
            )


def test_the_example_loads_with_every_line_taken_in(tmp_path: Path) -> None:
    """Copied to .env and uncommented, the example is valid as it is."""
    lines = [f"{name}={value}" for name, value in _VARIABLE.findall(EXAMPLE)]
    taken = [line for line in lines if not line.startswith("GPUWATCH_CONFIG=")]
    (tmp_path / ".env").write_text("\n".join(taken))
    settings = load(env={}, cwd=tmp_path)
    assert [watch.name for watch in settings.watches] == ["h100"]
    assert "email" in settings.channels
    assert settings.providers["vastai"].api_key == Secret("your-key")


@pytest.mark.parametrize("name", reference_pages.BLOCKS)
def test_a_reference_page_is_made_from_the_program(name: str) -> None:
    page = (ROOT / "docs" / name).read_text(encoding="utf-8")
    assert page == reference_pages.written(name), "make golden"


def test_the_page_of_commands_has_every_command_and_every_former_name() -> None:
    page = (ROOT / "docs/commands.md").read_text(encoding="utf-8")
    titles = set(re.findall(r"(?m)^#{3,4} `gpuwatch ([\w -]+)`$", page))
    names = {
        words
        for name, entry in COMMANDS.items()
        for words in ([name, *(f"{name} {one}" for one in entry.commands)] if isinstance(entry, GroupEntry) else [name])
    }
    assert titles == names
    assert set(re.findall(r"(?m)^\| `gpuwatch ([\w-]+)` \| `gpuwatch", page)) == set(ALIASES)


def test_the_page_of_what_is_sent_names_every_host_of_the_code() -> None:
    """Providers' hosts are settings, each on the page of its provider; comments name sources, help shows examples."""
    page = (ROOT / "docs/privacy.md").read_text(encoding="utf-8")
    outside = {"providers", "emulator", "testing"}
    code = [path for path in (ROOT / "gpuwatch").rglob("*.py") if path.parts[len(ROOT.parts) + 1] not in outside]
    texts = [re.sub(r"#.*|source:.*", "", path.read_text(encoding="utf-8")) for path in code]
    named = {host for text in texts for host in re.findall(r"https?://([a-z0-9-]+(?:\.[a-z0-9-]+)+)", text)}
    examples = {"hc-ping.com", "hooks.slack.com", "discord.com", "t.me", "127.0.0.1", "www.w3.org", "json-schema.org"}
    assert {host for host in named - examples if "example" not in host and f"`{host}`" not in page} == set()


def test_the_figure_of_the_price_adds_up() -> None:
    """In both languages, with the provider's own default."""
    rate = providers.info("vastai").commission.rate
    for page in ("README.md", "README.ru.md", "docs/price.md"):
        amounts = [Decimal(found) for found in re.findall(r"\$(\d\.\d\d)/h", (ROOT / page).read_text(encoding="utf-8"))]
        quote, disk, listed, reserve, price = amounts[:5]
        assert (quote + disk, listed * Decimal(str(rate)), listed + reserve) == (listed, reserve, price)


def test_the_readme_is_short_and_in_its_order() -> None:
    assert len(README.splitlines()) <= 90
    order = ["(docs/pictures/falling-price.svg)", "make demo", "make test", "pipx install .", "gpuwatch check --gpu"]
    order += ["gpuwatch init", "**What it costs:**", "| a cron script |", "## Safety", "## The price", "## Where next"]
    places = [README.index(text) for text in order]
    assert places == sorted(places)
    assert len(re.findall(r"(?m)^\| [\w?]", README)) == 10  # rows of the comparison
    assert f"| {len(providers.names())}, and tells live offers" in README


@pytest.mark.parametrize(("russian", "english"), RUSSIAN.items())
def test_a_russian_page_names_the_commands_of_the_english_one(russian: str, english: list[str]) -> None:
    """Each line to type, without its comment; a start in one page is three pages in English."""
    theirs = [line for page in english for line in _lines_to_type(page)]
    ours = _lines_to_type(russian)
    assert set(ours) <= set(theirs)
    if len(english) == 1:
        assert ours == theirs
    else:
        assert len(ours) > 15


def _lines_to_type(page: str) -> list[str]:
    blocks = re.findall(r"(?ms)^```sh\n(.*?)^```", (ROOT / page).read_text(encoding="utf-8"))
    return [line.partition("  #")[0].rstrip() for block in blocks for line in block.splitlines()]


@pytest.mark.parametrize("page", READ, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_a_document_begins_with_what_its_reader_can_do(page: Path) -> None:
    """Decisions are for those who change the program; README says it in its first lines."""
    first = page.read_text(encoding="utf-8").split("\n\n")[1]
    assert _GAIN.search(" ".join(first.split())), first


def test_a_text_names_commands_that_exist_by_the_names_of_today() -> None:
    for path in TEXTS:
        text = path.read_text(encoding="utf-8")
        for before, name, word in _TO_TYPE.findall(text):
            entry = COMMANDS.get(name) or SHORT_NAMES.get(name)
            assert entry or not before, f"{path}: gpuwatch {name}"  # at the start of a line it may be a sentence
            assert not isinstance(entry, GroupEntry) or not word or word in entry.commands, (
                f"{path}: gpuwatch {name} {word}"
            )
        assert not set(_ADVISED.findall(text)) & ALIASES.keys(), path


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_link_of_a_page_leads_to_a_file(page: Path) -> None:
    links = re.findall(r"\]\(([^)#\s]+)", page.read_text(encoding="utf-8"))
    assert [link for link in links if "://" not in link and not (page.parent / link).exists()] == []


def test_a_decision_that_is_named_exists() -> None:
    numbers = {page.name[:4] for page in (ROOT / "docs" / "decisions").glob("*.md")}
    code = [path for folder in ("gpuwatch", "tests", "benchmarks") for path in (ROOT / folder).rglob("*.py")]
    for path in [*PAGES, *code]:
        named = set(re.findall(r"[Dd]ecisions?[/ ](\d{4})\b", path.read_text(encoding="utf-8")))
        assert named <= numbers, path


def test_contributing_lists_every_decision() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").partition("## Six tasks")[0]
    ranges = re.findall(r"\b(\d{4})(?:–(\d{4}))?\b", text)
    listed = [number for first, last in ranges for number in range(int(first), int(last or first) + 1)]
    stored = [int(page.name[:4]) for page in (ROOT / "docs" / "decisions").glob("*.md")]
    assert (sorted(set(stored) - set(listed)), len(listed)) == ([], len(set(listed)))


def test_a_test_that_a_page_names_as_evidence_exists() -> None:
    for page in PAGES:
        text = page.read_text(encoding="utf-8") if page.name != "CHANGELOG.md" else ""  # its names stay as they were
        for path, test in re.findall(r"(?<![\w/])(tests/[a-z0-9_/]+\.py)(?:::(\w+))?", text):
            assert (ROOT / path).is_file(), (page.name, path)
            assert not test or f"def {test}(" in (ROOT / path).read_text(encoding="utf-8"), (page.name, path, test)


@pytest.mark.parametrize("page", ["CONTRIBUTING.md", "docs/architecture.md"])
def test_every_path_that_a_page_about_the_code_names_exists(page: str) -> None:
    """Below the checkout, the package or the tests; NAME, NOUN and the like stand for any name."""
    named = set(_PATH.findall((ROOT / page).read_text(encoding="utf-8")))
    assert len(named) > 20
    assert sorted(path for path in named if not _exists(path)) == []


def _exists(path: str) -> bool:
    if (ROOT / path).exists():
        return True
    pattern = "/".join("*" if _PLACEHOLDER.search(part) else part for part in path.removesuffix("/").split("/"))
    inside = pattern if "/" in pattern else f"**/{pattern}"  # a name alone: wherever it is
    return any(True for base in (ROOT / "gpuwatch", TESTS) for _ in base.glob(inside)) or any(ROOT.glob(pattern))


def test_contributing_shows_six_tasks_with_their_files() -> None:
    page = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    tasks = dict(re.findall(r"(?ms)^### (.+?)$(.*?)(?=^##)", page))
    assert list(tasks) == [
        "Add a provider",
        "Add a channel",
        "Change when a watch fires",
        "Add a flag to a command",
        "Add a column to the history, with export",
        "Add a page that calls a use case",
    ]
    assert [title for title, text in tasks.items() if len(set(_PATH.findall(text))) < 3] == []


def test_architecture_names_every_folder() -> None:
    table = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
    folders = {path.name for path in (ROOT / "gpuwatch").iterdir() if (path / "__init__.py").is_file()}
    assert folders <= set(re.findall(r"(?m)^\| `(\w+)/` \|", table))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_has_one_title_and_lines_that_fit(page: Path) -> None:
    """Table rows and code are exempt: neither can be wrapped."""
    in_code, titles, long = False, 0, []
    for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1):
        if line.lstrip().startswith("```"):
            in_code = not in_code
        elif not in_code:
            titles += line.startswith("# ")
            if len(line) > 120 and not line.lstrip().startswith("|"):
                long.append(number)
    assert (titles, long) == (1, [])
