"""The wheel alone, in an empty environment: everything gpuwatch needs is in it, or in requirements/runtime.txt."""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import venv
import zipfile
from importlib.metadata import distribution
from pathlib import Path
from urllib.request import Request, urlopen

import pytest
from packaging.requirements import Requirement

from gpuwatch import __version__
from tests.checkout import ROOT

INSTALL_S = 300  # downloads of packages may be slow

pytestmark = [pytest.mark.slow, pytest.mark.timeout(INSTALL_S + 60)]


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Path:
    """Return a folder that all workers of a run share."""
    own = tmp_path_factory.getbasetemp()
    folder = (own.parent if hasattr(request.config, "workerinput") else own) / "wheel"
    folder.mkdir(exist_ok=True)
    return folder


@pytest.fixture(scope="session")
def wheel(shared: Path) -> Path:
    """The delivered gpuwatch, built once per run: the sdist, and from it the wheel."""
    with open(shared / "wheel.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not list(shared.glob("*.whl")):
            _make_dist(ROOT, shared)
    (built,) = shared.glob("*.whl")
    return built


def _make_dist(checkout: Path, to: Path) -> None:
    """Run `make dist`, with this environment as it is."""
    env = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}
    words = [f"VENV={sys.prefix}", f"PYTHON={sys.executable}", f"DIST={to}", "SOURCE_DATE_EPOCH=1700000000"]
    _run(["make", "--old-file", f"{sys.prefix}/.dev-stamp", "dist", *words], cwd=checkout, env=env)


@pytest.fixture(scope="session")
def installed(wheel: Path, shared: Path) -> Path:
    """The program, installed as in docs/deploy.md: locked packages, then the wheel, and nothing else."""
    home = shared / "venv"
    with open(shared / "venv.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (home / "done").exists():
            venv.create(home, with_pip=False, clear=True)
            (site,) = home.glob("lib/python*/site-packages")
            for line in _locked("runtime"):
                _link(Requirement(line.partition(" --hash")[0]), site)
            pip = [sys.executable, "-m", "pip", "--python", str(home / "bin/python"), "--disable-pip-version-check"]
            _run([*pip, "-q", "install", "--no-compile", "--no-deps", str(wheel)])
            (home / "done").touch()
    return home / "bin/gpuwatch"


def _locked(name: str) -> list[str]:
    """Return the packages of a lock, each with its version and hashes."""
    text = (ROOT / f"requirements/{name}.txt").read_text().replace("\\\n", " ")
    return [" ".join(line.split()) for line in text.splitlines() if line[:1].isalnum()]


def _link(locked: Requirement, site: Path) -> None:
    """Link a package of this environment, which was installed from a lock with the same hashes."""
    if locked.marker is not None and not locked.marker.evaluate():
        return
    found = distribution(locked.name)
    assert found.version in locked.specifier, locked
    for top in {file.parts[0] for file in found.files or () if file.parts[0] not in {"..", "__pycache__"}}:
        (site / top).symlink_to(str(found.locate_file(top)))


def _run(command: list[str], cwd: Path | None = None, env: dict[str, str] | None = None) -> None:
    done = subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, timeout=INSTALL_S, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def _gpuwatch(program: Path, folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run it in an empty folder, with an empty home and none of this process's environment."""
    env = {"HOME": str(folder / "home"), "PATH": os.defpath, "LANG": "C.UTF-8"}
    return subprocess.run(
        [str(program), *words], cwd=folder, env=env, capture_output=True, text=True, timeout=100, check=False
    )


def _said(done: subprocess.CompletedProcess[str]) -> str:
    return f"exit {done.returncode}\n{done.stdout}\n{done.stderr}"


def test_what_is_linked_is_what_pip_installs() -> None:
    """deploy/test_install.py installs the server's lock by pip, which checks the hashes."""
    assert _locked("runtime")
    assert set(_locked("runtime")) < set(_locked("server"))
    assert set(_locked("runtime")) < set(_locked("dev"))


# --- reproducible -----------------------------------------------------------------------------------------------------


def test_two_builds_are_equal_byte_for_byte(wheel: Path, shared: Path, tmp_path: Path) -> None:
    """From another folder, with other times and modes of its files."""
    copy = tmp_path / "checkout"
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(listed, cwd=ROOT, capture_output=True, text=True, check=True, timeout=240).stdout
    for name in filter(None, names.split("\0")):
        if (ROOT / name).is_file():
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, copy / name)
            (copy / name).chmod(0o700 if os.access(ROOT / name, os.X_OK) else 0o600)
    _make_dist(copy, tmp_path / "dist")
    built = {path.name: path.read_bytes() for path in (tmp_path / "dist").iterdir()}
    assert {path.suffix for path in map(Path, built)} == {".gz", ".whl"}
    assert {name: (shared / name).read_bytes() == content for name, content in built.items()} == dict.fromkeys(
        built, True
    )


# --- contents ---------------------------------------------------------------------------------------------------------


def _names(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as opened:
        return set(opened.namelist())


def test_every_file_of_the_package_is_inside(wheel: Path) -> None:
    """Also files that are not Python: the catalogue, translations, the page's files, spellings, the emulator's rows."""
    ours = {path.relative_to(ROOT).as_posix() for path in (ROOT / "gpuwatch").rglob("*") if _is_source(path)}
    assert {
        "gpuwatch/app/forecasts/long-prices.csv",
        "gpuwatch/domain/market/gpu-catalog.csv",
        "gpuwatch/domain/market/gpu-figures.csv",
        "gpuwatch/domain/market/machine-networks.csv",
        "gpuwatch/domain/plan/architectures/language-models.csv",
        "gpuwatch/domain/plan/owners/credits.csv",
        "gpuwatch/domain/plan/owners/owner-cases.toml",
        "gpuwatch/providers/vastai/gpu-names.txt",
        "gpuwatch/locale/ru/LC_MESSAGES/gpuwatch.mo",
        "gpuwatch/locale/ru/LC_MESSAGES/gpuwatch.po",
        "gpuwatch/web/static/icons/icon-192.png",
        "gpuwatch/web/static/manifest.webmanifest",
        "gpuwatch/web/templates/base.html",
    } < ours
    assert "gpuwatch/emulator/market/odd_rows.json" in ours
    assert ours - _names(wheel) == set()


def test_the_migrations_are_inside_the_package(wheel: Path) -> None:
    ours = {path.relative_to(ROOT).as_posix() for path in (ROOT / "migrations").rglob("*") if _is_source(path)}
    assert "migrations/env.py" in ours
    assert {f"gpuwatch/{name}" for name in ours} <= _names(wheel)


def test_the_pages_of_the_documentation_are_inside(wheel: Path) -> None:
    """Those for users: decision records and pictures stay in the repository."""
    folders = ("docs", "docs/providers", "docs/ru")
    pages = {path.relative_to(ROOT).as_posix() for folder in folders for path in (ROOT / folder).glob("*.md")}
    assert {name for name in _names(wheel) if name.startswith("gpuwatch/docs/")} == {
        f"gpuwatch/{page}" for page in pages
    }


def test_the_units_are_inside_and_would_run_this_program(installed: Path, wheel: Path, tmp_path: Path) -> None:
    assert {name for name in _names(wheel) if name.startswith("gpuwatch/deploy/")} == {
        f"gpuwatch/deploy/{name}" for name in ("gpuwatch.service", "gpuwatch-keep.service", "gpuwatch-keep.timer")
    }
    (tmp_path / "gpuwatch.toml").write_text("dry_run = true\n")
    done = _gpuwatch(installed, tmp_path, "service", "install", "--user", "--print")
    assert done.returncode == 0, _said(done)
    assert f"\nExecStart={installed} run --config {tmp_path}/gpuwatch.toml\n" in done.stdout


def test_nothing_else_is_inside(wheel: Path) -> None:
    tops = {name.partition("/")[0] for name in _names(wheel)}
    assert tops == {"gpuwatch", f"gpuwatch_daemon-{__version__}.dist-info"}


def _is_source(path: Path) -> bool:
    return path.is_file() and "__pycache__" not in path.parts and path.suffix != ".pyc"


# --- behaviour --------------------------------------------------------------------------------------------------------


def test_it_tells_its_version(installed: Path, tmp_path: Path) -> None:
    done = _gpuwatch(installed, tmp_path, "--version")
    assert (done.returncode, done.stdout, done.stderr) == (0, f"gpuwatch {__version__}\n", "")


def test_it_writes_a_first_settings_file(installed: Path, tmp_path: Path) -> None:
    done = _gpuwatch(installed, tmp_path, "init", "--full")
    assert done.returncode == 0, _said(done)
    assert (tmp_path / "gpuwatch.toml").is_file()
    shown = _gpuwatch(installed, tmp_path, "config", "show", "--json")
    assert shown.returncode == 0, _said(shown)


def test_it_makes_its_database(installed: Path, tmp_path: Path) -> None:
    done = _gpuwatch(installed, tmp_path, "db", "upgrade")
    assert done.returncode == 0, _said(done)
    assert (tmp_path / "home/.local/state/gpuwatch/gpuwatch.db").is_file()
    again = _gpuwatch(installed, tmp_path, "db", "upgrade")
    assert "nothing to do" in again.stdout


def test_it_answers_in_russian_with_its_own_files(installed: Path, tmp_path: Path) -> None:
    """Templates, styles, icons, manifest and catalogues, over HTTP; the terminal stays English."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    (tmp_path / "gpuwatch.toml").write_text(f'language = "auto"\ndry_run = true\n[web]\nlisten = "127.0.0.1:{port}"\n')
    env = {"HOME": str(tmp_path / "home"), "PATH": os.defpath, "LANG": "ru_RU.UTF-8"}
    assert _gpuwatch(installed, tmp_path, "db", "upgrade").returncode == 0
    with subprocess.Popen(
        [str(installed), "web"], cwd=tmp_path, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as web:
        assert web.stdout is not None
        said = next(line for line in web.stdout if "http://" in line)
        page = _fetched(port, "/login")
        found = {path: _fetched(port, path) for path in set(re.findall(r'(?:href|src)="(/static/[^"#]+)', page))}
        manifest = json.loads(_fetched(port, "/static/manifest.webmanifest"))
        icons = [_fetched(port, icon["src"]) for icon in manifest["icons"]]
        web.terminate()
    assert said.isascii()
    assert '<html lang="ru">' in page
    assert "Войти" in page
    assert "/static/manifest.webmanifest" in found
    assert all(found.values())
    assert all(icons)


def _fetched(port: int, path: str) -> str:
    request = Request(f"http://127.0.0.1:{port}{path}", headers={"Accept-Language": "ru", "Accept": "text/html"})
    with urlopen(request, timeout=240) as answer:
        return str(answer.read().decode("utf-8", "replace"))


def test_it_plays_the_demo(installed: Path, tmp_path: Path) -> None:
    """Emulator, polls, history, alert, launch and its end, from the wheel alone."""
    done = _gpuwatch(installed, tmp_path, "demo")
    assert done.returncode == 0, _said(done)
    assert "rented once" in done.stdout
    assert list(tmp_path.iterdir()) == []
