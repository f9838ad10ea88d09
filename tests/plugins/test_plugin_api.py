"""One module holds what a package imports from gpuwatch; the places that packages for 0.1 know are still there."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

from gpuwatch import notifiers, plugin_api, providers, testing
from gpuwatch.app.setup.new_provider import package_files
from tests.plugins.conftest import Beside
from tests.plugins.test_example import PAGE

# What docs/write-a-provider.md and `gpuwatch providers new` named in 0.1: module → names.
PLACES_IN_0_1 = {
    "gpuwatch.domain.market.gpu_names": ["catalog"],
    "gpuwatch.domain.market.offer": ["Offer", "OfferTerms"],
    "gpuwatch.errors": [
        "DeliverLater", "DeliveryRefused", "OfferGone", "OrderError", "OrderRefused", "OutcomeUnknown",
        "PayloadChanged", "ProviderError",
    ],
    "gpuwatch.notifiers": ["ChannelInfo"],
    "gpuwatch.notifiers.toolkit": ["as_text", "subject"],
    "gpuwatch.ports": ["Created", "Instance", "InstanceState", "Order", "ProviderSettings"],
    "gpuwatch.ports.alerts": ["Alert", "Channel"],
    "gpuwatch.ports.declarations": ["OptionSpec", "Tools"],
    "gpuwatch.ports.findings": ["Finding"],
    "gpuwatch.ports.http": ["HttpReply", "NetError"],
    "gpuwatch.ports.prerequisites": ["Prerequisite", "PrerequisiteName", "PrerequisiteSpec", "declared"],
    "gpuwatch.providers.toolkit": ["Adapter", "OptionSpec", "ProviderInfo"],
    "gpuwatch.providers.toolkit.api_client": ["ApiClient"],
    "gpuwatch.providers.toolkit.basic_launcher": [
        "BasicLauncher", "created_instance", "decoded_order", "id_and_status", "instance_rows", "not_sent",
        "one_instance", "refuse",
    ],
    "gpuwatch.providers.toolkit.catalogue": ["CatalogueMarket", "read_types"],
    "gpuwatch.providers.toolkit.error_mapping": ["ErrorBody", "ordering_error", "reading_error"],
    "gpuwatch.providers.toolkit.first_boot": ["first_boot_script"],
    "gpuwatch.providers.toolkit.instance_status": ["StatusWords"],
    "gpuwatch.providers.toolkit.machine_type": ["MachineType", "fields_of_instance"],
    "gpuwatch.providers.toolkit.post_processing": ["ParseResult", "RowSkipped", "build_answer"],
    "gpuwatch.providers.toolkit.validation": ["at", "number", "usd_hour", "whole", "word"],
}  # fmt: skip
KIT_IN_0_1 = {
    "gpuwatch.emulator.answers": ["RefusedRequest", "reply"],
    "gpuwatch.emulator.provider_server": ["ProviderServer"],
    "gpuwatch.testing": ["Bench"],
    "gpuwatch.testing.launcher": ["LauncherSuite"],
    "gpuwatch.testing.market": ["MarketSuite"],
}
PUBLIC = {"gpuwatch.plugin_api": set(plugin_api.__all__), "gpuwatch.testing": set(testing.__all__)}


def imports(source: str) -> Iterator[tuple[str, str]]:
    """Every name that a module imports from gpuwatch, with the module that it names."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "gpuwatch":
            yield from ((node.module or "", alias.name) for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from ((alias.name, "") for alias in node.names if alias.name.partition(".")[0] == "gpuwatch")


def sources() -> dict[str, str]:
    """The Python of the page, by its first line, and of the generated package."""
    blocks = re.findall(r"(?ms)^```python\n(.*?)^```$", PAGE.read_text(encoding="utf-8"))
    written = {name: text for name, text in package_files("sky_cloud").items() if name.endswith(".py")}
    return {f"{block.splitlines()[0]} ({number})": block for number, block in enumerate(blocks)} | written


def test_the_page_and_the_generated_package_import_from_the_public_modules_alone() -> None:
    seen = {place for source in sources().values() for place in imports(source)}
    assert {name for module, name in seen if name not in PUBLIC.get(module, ())} == set()
    assert {module for module, _ in seen} == set(PUBLIC)


def test_the_page_names_no_other_module_in_its_text() -> None:
    prose = re.sub(r"(?ms)^```.*?^```$", "", PAGE.read_text(encoding="utf-8"))
    named = set(re.findall(r"`(gpuwatch\.\w+(?:\.\w+)*)`", prose))
    assert named <= {*PUBLIC, "gpuwatch.providers", "gpuwatch.notifiers"}  # the two are groups of entry points


def test_the_examples_of_the_suites_use_them_too() -> None:
    folder = Path(__file__).parent
    for name in ("acme.py", "packages.py"):
        assert {module for module, _ in imports((folder / name).read_text())} <= set(PUBLIC), name


@pytest.mark.parametrize("module", PUBLIC)
def test_each_name_is_listed_once_and_is_there(module: str) -> None:
    held = import_module(module)
    assert len(held.__all__) == len(PUBLIC[module])
    assert all(hasattr(held, name) for name in held.__all__)


@pytest.mark.parametrize("module", [*PLACES_IN_0_1, *KIT_IN_0_1])
def test_a_place_that_0_1_named_holds_the_same_object(module: str) -> None:
    public = plugin_api if module in PLACES_IN_0_1 else testing
    for name in (PLACES_IN_0_1 | KIT_IN_0_1)[module]:
        assert getattr(import_module(module), name) is getattr(public, name)


def test_packages_that_import_from_all_these_places_are_loaded(beside: Beside) -> None:
    """As a provider and as a channel, without a warning."""
    taken = "\n".join(f"from {module} import {', '.join(names)}" for module, names in PLACES_IN_0_1.items())
    built = "\n\ndef build(settings, tools):\n    raise NotImplementedError\n"
    cloud = f'{taken}\n\nINFO = ProviderInfo(name="old", title="Old", base_url="https://old.example")\n{built}'
    pager = f'{taken}\n\nINFO = ChannelInfo(name="old", title="Old")\n{built}'
    beside("old_cloud", {"old_cloud": cloud}, {"gpuwatch.providers": {"old": "old_cloud"}})
    beside("old_pager", {"old_pager": pager}, {"gpuwatch.notifiers": {"old": "old_pager"}})
    assert (providers.info("old").title, notifiers.info("old").title) == ("Old", "Old")
    assert not {"old"} & {*providers.broken(), *notifiers.broken()}


def test_a_package_that_imports_from_elsewhere_is_one_line_and_the_others_stay(
    beside: Beside, caplog: pytest.LogCaptureFixture
) -> None:
    before = providers.names()
    source = "from gpuwatch.domain.market.no_such_module import Offer\n"
    beside("lost", {"lost_cloud": source}, {"gpuwatch.providers": {"lost": "lost_cloud"}})
    assert providers.names() == before
    assert [record.getMessage() for record in caplog.records] == [
        "ignoring the provider lost of lost-1.0: "
        "ModuleNotFoundError: No module named 'gpuwatch.domain.market.no_such_module'"
    ]


def test_gpuwatch_itself_starts_without_it() -> None:
    program = "import sys, gpuwatch.cli.watches.check, gpuwatch.bootstrap; print('gpuwatch.plugin_api' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=240, check=True)
    assert done.stdout.strip() == "False"
    statement = re.compile(r"(?m)^\s*(?:from|import) .*\bplugin_api\b")
    own = Path(plugin_api.__file__)
    assert [path for path in own.parent.rglob("*.py") if path != own and statement.search(path.read_text())] == []
