"""`gpuwatch share`: links on the terminal."""

from __future__ import annotations

from tests.cli.conftest import Shell
from tests.upgraded_store import open_upgraded

_SETTINGS = """
timezone = "Europe/Berlin"
database_url = "{url}"
[web]
public_url = "https://gpu.example.org"
[[watch]]
name = "cheap"
gpu = ["H100"]
max_price = 2.40
"""


def test_a_link_is_printed_with_its_picture_and_its_end(shell: Shell) -> None:
    url = f"sqlite:///{shell.folder}/gpuwatch.db"
    open_upgraded(url).close()
    shell.settings(_SETTINGS.format(url=url))
    ran = shell("share", "gpu", "H100", "--for", "2h")
    assert ran.code == 0, ran.err
    address, picture, until = ran.out.splitlines()
    assert address.startswith("https://gpu.example.org/share/gpu?name=H100&until=")
    assert picture.startswith("picture: https://gpu.example.org/share/gpu.svg?name=H100&until=")
    assert until.startswith("valid until 20")
    found = shell("share", "alerts", "--json").json
    assert (found["shows"], found["name"], found["picture_url"]) == ("alerts", "", None)
    assert found["url"].startswith("https://gpu.example.org/alerts.atom?until=")
    events = shell("alerts", "list", "--kind", "audit").out
    assert "link to gpu H100 made" in events
    assert shell("share", "revoke").out == "every shared link has ended\n"


def test_what_cannot_be_shared_is_refused(shell: Shell) -> None:
    url = f"sqlite:///{shell.folder}/gpuwatch.db"
    open_upgraded(url).close()
    shell.settings(_SETTINGS.format(url=url))
    for argv in (("gpu",), ("alerts", "x"), ("watch", "other"), ("gpu", "no card"), ("gpu", "H100", "--for", "400d")):
        ran = shell("share", *argv)
        assert ran.code == 2, argv
        assert len(ran.err.splitlines()) == 1, argv
