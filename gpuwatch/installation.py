"""How gpuwatch was installed, and so which command adds packages to it. Every install hint comes from here.

It reads metadata on disk, and only when a hint is needed.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import sys
from collections.abc import Sequence
from enum import Enum
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import unquote, urlsplit

if TYPE_CHECKING:
    from importlib.metadata import Distribution

DISTRIBUTION = "gpuwatch-daemon"  # on PyPI, `gpuwatch` is another project
_PACKAGE = Path(__file__).resolve().parent
_CHECKOUT = _PACKAGE.parent
_EXTRA = re.compile(r"""extra\s*==\s*['"]([^'"]+)['"]""")


class Installer(Enum):
    """The tool that manages the environment that gpuwatch runs in."""

    PIPX = "pipx"
    UV_TOOL = "uv tool"
    PIP = "pip"  # an ordinary environment
    CHECKOUT = "checkout"  # an editable install, or no install at all


class Installation(NamedTuple):
    """One gpuwatch in its environment."""

    installer: Installer
    source: str  # what was installed: the name on PyPI, a path or an address
    prefix: Path
    pip_install: str  # `pip install`, or what reaches this environment's pip
    distribution: Distribution | None


def install_hint(extra: str, installed: Installation | None = None) -> str:
    """The command that installs an extra, such as `pip install 'gpuwatch-daemon[analysis]'`.

    Args:
        installed: None: this gpuwatch.
    """
    current = installed or installation()
    if current.installer is Installer.CHECKOUT:
        return f"{current.pip_install} -e {shlex.quote(f'{current.source}[{extra}]')}"
    if current.installer is Installer.PIP:
        return f"{current.pip_install} {shlex.quote(f'{DISTRIBUTION}[{extra}]')}"
    return _add(current, _requirements(current.distribution, extra) or [f"{DISTRIBUTION}[{extra}]"])


def package_hint(package: str, *options: str, installed: Installation | None = None) -> str:
    """The command that installs one more package beside gpuwatch.

    Args:
        options: for pip, such as `--no-deps`.
    """
    current = installed or installation()
    words = " ".join([*options, shlex.quote(package)])
    if current.installer is Installer.PIPX and options:
        return f"pipx runpip {DISTRIBUTION} install {words}"
    if current.installer in {Installer.PIPX, Installer.UV_TOOL} and not options:
        return _add(current, [package])
    return f"{current.pip_install} {words}"


def installation(prefix: Path | None = None) -> Installation:
    """How gpuwatch was installed.

    Args:
        prefix: the environment; None: the one that runs this.
    """
    distribution = _own_distribution()
    source, is_editable = _source(distribution)
    installer = Installer.CHECKOUT if distribution is None or is_editable else Installer.PIP
    prefix = prefix or Path(sys.prefix)
    if (prefix / "pipx_metadata.json").is_file():
        installer = Installer.PIPX
    elif (prefix / "uv-receipt.toml").is_file():
        installer = Installer.UV_TOOL
    return Installation(installer, source, prefix, _pip_install(), distribution)


def packaged_path(name: str) -> Path | None:
    """Where `migrations` or `docs/settings.md` lies: in an installed package, or at the top of the checkout."""
    return next((path for path in (_PACKAGE / name, _CHECKOUT / name) if path.exists()), None)


def _own_distribution() -> Distribution | None:
    from importlib.metadata import PackageNotFoundError, distribution  # noqa: PLC0415 20 ms, for a hint alone

    try:
        return distribution(DISTRIBUTION)
    except PackageNotFoundError:
        return None


def _source(distribution: Distribution | None) -> tuple[str, bool]:
    """What was installed, and whether it is editable. source: PEP 610, direct_url.json."""
    if distribution is None:
        return str(_CHECKOUT), True
    try:
        record: dict[str, Any] = json.loads(distribution.read_text("direct_url.json") or "{}")
    except ValueError:
        record = {}
    url = str(record.get("url") or "")
    is_editable = bool((record.get("dir_info") or {}).get("editable"))
    if url.startswith("file:"):
        return unquote(urlsplit(url).path), is_editable
    vcs = record.get("vcs_info") or {}
    return (f"{vcs['vcs']}+{url}" if vcs.get("vcs") else url) or DISTRIBUTION, is_editable


def _requirements(distribution: Distribution | None, extra: str) -> list[str]:
    """What an extra adds, without markers: `["matplotlib>=3.10", "pyarrow>=20"]`."""
    lines = (distribution.requires if distribution else None) or []
    parts = [line.partition(";") for line in lines]
    return [requirement.strip() for requirement, _, marker in parts if extra in _EXTRA.findall(marker)]


def _add(current: Installation, packages: Sequence[str]) -> str:
    """The command of pipx or uv that adds packages to gpuwatch's own environment."""
    if current.installer is Installer.PIPX:
        return f"pipx inject {DISTRIBUTION} {' '.join(map(shlex.quote, packages))}"
    with_packages, extras = _uv_receipt(current.prefix)  # uv forgets what an earlier --with added
    options = " ".join(f"--with {shlex.quote(package)}" for package in dict.fromkeys([*with_packages, *packages]))
    return f"uv tool install {options} {shlex.quote(current.source + extras)}"


def _uv_receipt(prefix: Path) -> tuple[list[str], str]:
    """The packages that an earlier --with added, and gpuwatch's own extras: `[aws]`."""
    import tomllib  # noqa: PLC0415

    try:
        rows = tomllib.loads((prefix / "uv-receipt.toml").read_text("utf-8"))["tool"]["requirements"]
        own: dict[str, Any] = next((row for row in rows if row["name"] == DISTRIBUTION), {})
        others = [row["name"] + row.get("specifier", "") for row in rows if row["name"] != DISTRIBUTION]
        return others, f"[{','.join(own['extras'])}]" if own.get("extras") else ""
    except (OSError, ValueError, KeyError, TypeError):
        return [], ""


def _pip_install() -> str:
    """`pip install` where that reaches this environment; else spelled out with its interpreter."""
    if find_spec("pip") is None:
        return f"uv pip install --python {shlex.quote(sys.executable)}"
    pip = shutil.which("pip")
    is_own = pip is not None and os.path.dirname(pip) == os.path.dirname(sys.executable)
    return "pip install" if is_own else f"{shlex.quote(sys.executable)} -m pip install"
