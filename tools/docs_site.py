"""What mkdocs.yml cannot say: the pages that lie outside docs/, the menus of whole folders, and links between both.

The pages are read on GitHub, by `gpuwatch docs` and on the site; each is one file, whose links hold in the checkout.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[1]
SOURCE = "https://github.com/gpuwatch-daemon/gpuwatch"
# files of the checkout's top folder → their pages on the site
TOP_PAGES = {
    "README.md": "index.md",
    "README.ru.md": "ru/index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changes.md",
    "SECURITY.md": "security.md",
}
_TOP_FILES = {page: file for file, page in TOP_PAGES.items()}
_LINK = re.compile(r"(?<=\]\()([^)#\s:]+)(?=[)#])")
_ITEM = re.compile(r"(?:[-*+]|\d+\.) +")
_INLINE = re.compile(r"<pre\b.*?</pre>|<code>[^<]*</code>", re.S)
_OPTION = re.compile(r"(?<![\w-])--?[a-z][\w-]*")
_CODE = re.compile(r"(^```.*?^```|`[^`\n]+`)", re.S | re.M)
# what a search shows first: answers, then the pages of a task, then what explains how gpuwatch is built
_BOOST = {"faq.md": 6.0, "privacy.md": 2.0, "evidence.md": 0.3, "faults.md": 0.3, "mutation.md": 0.2, "sources.md": 0.1}
_BOOST |= {"performance.md": 0.3, "architecture.md": 0.4, "contributing.md": 0.4, "json.md": 0.5, "http.md": 0.5}
_DECISION_BOOST = 0.2
_DECISIONS = """# Decisions

Here you can look up why gpuwatch is built as it is, and what was refused: one page a subject, in at most 40 lines, and
only what is in force.

"""


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Replace the name of a folder in the menu by its pages."""
    assert config.nav is not None
    config.nav = _with_folders(config.nav)
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages of the top folder, and the list of the decisions."""
    from mkdocs.structure.files import File

    for name, page in TOP_PAGES.items():
        files.append(File.generated(config, page, content=(ROOT / name).read_text(encoding="utf-8")))
    decisions = "".join(f"- [{_title(path)}]({path.name})\n" for path in _pages("decisions"))
    files.append(File.generated(config, "decisions/index.md", content=_DECISIONS + decisions))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Lead links to the site's pages, or to the source where the site has none."""
    del config, files
    uri = page.file.src_uri
    if uri == "index.md":
        page.meta["hide"] = ["navigation"]
    elif uri == "changes.md":
        page.meta["search"] = {"exclude": True}
    elif uri.startswith("decisions/"):
        page.meta["search"] = {"boost": _DECISION_BOOST}
    elif uri in _BOOST:
        page.meta["search"] = {"boost": _BOOST[uri]}
    linked = "".join(
        part.replace("\\|", "|")  # GitHub's tables need the backslash, those of the site show it
        if part.startswith("`")
        else _LINK.sub(lambda found: site_link(found[1], uri), part)
        for part in _CODE.split(markdown)
    )
    return indented(linked)


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Keep an option of a command on one line: a browser would break it after its dashes."""
    del page, config, files
    return _INLINE.sub(lambda found: found[0] if found[0].startswith("<pre") else whole_options(found[0]), html)


def whole_options(code: str) -> str:
    """Return code within a line, whose options are not broken."""
    return _OPTION.sub(lambda option: f'<span class="option">{option[0]}</span>', code)


def indented(markdown: str) -> str:
    """Indent what belongs to a list item by four columns a level: GitHub needs less, the site's Markdown does not."""
    lines: list[str] = []
    starts: list[int] = []  # columns at which the text of the open items begins
    fenced = False
    for line in markdown.split("\n"):
        text = line.lstrip(" ")
        column = len(line) - len(text)
        if not fenced and text:
            while starts and column < starts[-1]:
                starts.pop()
        inner = column - (starts[-1] if starts else 0)
        lines.append(" " * (4 * len(starts) + max(0, inner)) + text if text else "")
        if text.startswith("```"):
            fenced = not fenced
        elif not fenced and (item := _ITEM.match(text)):
            starts.append(column + item.end())
    return "\n".join(lines)


def site_link(link: str, page: str) -> str:
    """Return a link of a page, as the site needs it.

    Args:
        link: as it is written, relative to the file in the checkout.
        page: the page's path on the site, such as `ru/index.md`.
    """
    source = _TOP_FILES.get(page, f"docs/{page}")
    path = posixpath.normpath(posixpath.join(posixpath.dirname(source), link))
    if path.startswith("docs/"):
        target = path.removeprefix("docs/")
        if (ROOT / path).is_dir():
            target += "/README.md" if (ROOT / path / "README.md").exists() else "/index.md"
    elif path in TOP_PAGES:
        target = TOP_PAGES[path]
    else:
        return f"{SOURCE}/{'tree' if (ROOT / path).is_dir() else 'blob'}/main/{path}"
    return posixpath.relpath(target, posixpath.dirname(page) or ".")


def _with_folders(entries: list[Any]) -> list[Any]:
    shown: list[Any] = []
    for entry in entries:
        if not isinstance(entry, dict):
            shown.append(entry)
            continue
        ((title, below),) = entry.items()
        if isinstance(below, list):
            below = _with_folders(below)
        elif below == "decisions":
            below = ["decisions/index.md", *_uris("decisions")]
        elif below == "providers":
            below = ["providers/README.md", *_uris("providers")]
        shown.append({title: below})
    return shown


def _uris(folder: str) -> Iterator[str]:
    return (f"{folder}/{path.name}" for path in _pages(folder))


def _pages(folder: str) -> list[Path]:
    return sorted(path for path in (ROOT / "docs" / folder).glob("*.md") if path.name != "README.md")


def _title(path: Path) -> str:
    return path.read_text(encoding="utf-8").partition("\n")[0].lstrip("# ")
