"""Libraries of extras, of the page, of metrics and of alerts wait for their use: no module loads one by itself."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib

import pytest

from tests.checkout import ROOT

_LIBRARIES = (
    "apprise boto3 botocore datatrove duckdb gpuhunt grpc jinja2 matplotlib multipart nebius onnxruntime"
    " prometheus_client psycopg pyarrow pysqlite3 rensa safetensors sklearn starlette tokenizers tomlkit uvicorn"
)
_LOAD_THEM = {  # the page, what edits a settings file for it, and the other database
    "gpuwatch.app.launches.requests.agent_requests",
    "gpuwatch.app.setup.first_watch.first_steps",
    "gpuwatch.app.watches.agent_watch",
    "gpuwatch.app.watches.edit_watch",
    "gpuwatch.storage.setup.postgres_connection",
}
_PROGRAM = """
import importlib, sys
libraries, modules = map(str.split, sys.argv[1:])
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in libraries:
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Absent())
for module in modules:
    try:
        importlib.import_module(module)
    except ModuleNotFoundError:
        print(module)
"""


@pytest.mark.slow
def test_only_the_page_and_the_other_database_load_them() -> None:
    paths = [path.relative_to(ROOT).with_suffix("") for path in sorted((ROOT / "gpuwatch").rglob("*.py"))]
    modules = [".".join(path.parts).removesuffix(".__init__") for path in paths if path.name != "__main__"]
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM, _LIBRARIES, " ".join(modules)],
        cwd=ROOT, capture_output=True, text=True, timeout=100, check=True,
    )  # fmt: skip
    assert {name for name in done.stdout.split() if not name.startswith("gpuwatch.web.")} == _LOAD_THEM


def test_every_hint_names_an_extra_that_installs_something() -> None:
    """Those of the page, of metrics and of Apprise are empty: they stay for older commands."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    pages = [*(ROOT / "docs").rglob("*.md"), *(ROOT / "gpuwatch").rglob("*.py"), ROOT / "README.md"]
    pattern = re.compile(r"""install_hint\(['"](\w[\w-]*)['"]\)|gpuwatch-daemon\[([\w,-]+)\]|(?<!\w)extra `([\w-]+)`""")
    named = {
        name for page in pages for found in pattern.findall(page.read_text()) for name in "".join(found).split(",")
    }
    assert len(named) > 5
    assert [name for name in sorted(named) if not extras.get(name)] == []
