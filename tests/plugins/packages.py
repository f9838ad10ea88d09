"""Packages beside gpuwatch, written by hand: modules and an installer's metadata."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path


def install(target: Path, project: str, modules: Mapping[str, str], entries: Mapping[str, Mapping[str, str]]) -> Path:
    """Write a package into a folder of `sys.path`.

    Args:
        modules: name → source.
        entries: group → name → target.
    """
    target.mkdir(exist_ok=True)
    for name, source in modules.items():
        (target / f"{name}.py").write_text(source)
    about = target / f"{project}-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project}\nVersion: 1.0\n")
    sections = [
        "\n".join([f"[{group}]", *(f"{name} = {value}" for name, value in points.items())])
        for group, points in entries.items()
    ]
    (about / "entry_points.txt").write_text("\n\n".join(sections) + "\n")
    return target


def provider_source(
    name: str,
    options: str = "()",
    extra: str = "",
    body: str = "return build_answer(ParseResult(), query, NAME, observed_at=tools.now(), elapsed_s=0.0)",
) -> str:
    """A provider that answers with nothing, unless `body` is given."""
    return f'''
from gpuwatch.plugin_api import Adapter, OptionSpec, ParseResult, ProviderInfo, build_answer

NAME = "{name}"
INFO = ProviderInfo(name=NAME, title="{name.title()}", base_url="https://{name}.example", options={options}, {extra})


def build(settings, tools):
    class Market:
        name = NAME

        def search(self, query):
            {body}

    return Adapter(name=NAME, info=INFO, market=Market())
'''


CHANNEL = """
from gpuwatch.plugin_api import ChannelInfo, OptionSpec

INFO = ChannelInfo(
    name="pager",
    title="Pager",
    options=(
        OptionSpec(name="token", kind="text", about="The pager's token.", secret=True, needed=True),
        OptionSpec(name="volume", kind="number", about="How loud.", default=3.0, least=0.0),
    ),
)


def build(settings, http):
    class Pager:
        name = "pager"
        sent = []

        def send(self, alert):
            if alert.headline == "break":
                raise KeyError(settings.options["token"])
            self.sent.append((alert.headline, settings.options["volume"]))

    return Pager()
"""
