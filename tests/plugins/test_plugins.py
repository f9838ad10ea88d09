"""Providers and channels of other packages: found by their entry points, and unable to break the others."""

from __future__ import annotations

import sys
import threading
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from gpuwatch import notifiers, providers
from gpuwatch.cli import Exit, run
from gpuwatch.errors import DeliverLater, DeliveryRefused, OutcomeUnknown, PayloadChanged, ProviderError, RateLimited
from gpuwatch.ports import (
    AccountLookup,
    ChannelSettings,
    Created,
    Instance,
    InstanceLookup,
    Order,
    ProviderSettings,
    Query,
)
from gpuwatch.ports.declarations import Adapter
from gpuwatch.providers.toolkit.basic_launcher import BasicLauncher
from gpuwatch.providers.toolkit.http.client import PooledHttpClient
from gpuwatch.providers.toolkit.isolation import isolate
from tests.notifiers.alerts import an_alert
from tests.plugins.conftest import Beside
from tests.plugins.packages import CHANNEL, install, provider_source

NOW = datetime(2026, 11, 21, tzinfo=UTC)
GROUP = "gpuwatch.providers"


def built(name: str) -> Adapter:
    settings = ProviderSettings(name=name, base_url="http://127.0.0.1:1")
    http = PooledHttpClient()
    try:
        return providers.build(settings, http, lambda: NOW, lambda: 0.0, stop=threading.Event())
    finally:
        http.close()


def test_a_provider_of_another_package_is_one_like_ours(beside: Beside) -> None:
    before = providers.names()
    beside("acme", {"acme_gpus": provider_source("acme")}, {GROUP: {"acme": "acme_gpus"}})
    assert set(providers.names()) == {*before, "acme"}
    assert providers.names() == tuple(sorted(providers.names()))
    assert providers.info("acme").title == "Acme"
    assert built("acme").market.search(Query()).provider == "acme"


def test_an_entry_point_may_name_an_object_in_a_module(beside: Beside) -> None:
    source = provider_source("acme") + "\nclass thing:\n    INFO, build = INFO, staticmethod(build)\n"
    beside("acme", {"acme_gpus": source}, {GROUP: {"acme": "acme_gpus:thing"}})
    assert built("acme").name == "acme"


def test_ours_cannot_be_replaced(beside: Beside, caplog: pytest.LogCaptureFixture) -> None:
    beside("evil", {"evil_gpus": provider_source("vastai")}, {GROUP: {"vastai": "evil_gpus"}})
    assert "vastai" in providers.names()
    assert providers.info("vastai").base_url == "https://console.vast.ai"
    assert "evil_gpus" not in sys.modules
    assert [record.getMessage() for record in caplog.records] == [
        "ignoring the provider vastai of evil-1.0: gpuwatch has a built-in of that name"
    ]


@pytest.mark.parametrize(
    ("name", "source", "why"),
    [
        ("bad", "import nothing_of_that_name", "ModuleNotFoundError: No module named 'nothing_of_that_name'"),
        ("bad", "INFO = 1", "its module has no INFO of type ProviderInfo"),
        ("bad", "def", "SyntaxError"),
        ("bad", provider_source("other"), "its INFO.name is 'other'"),
        ("bad", provider_source("bad") + "\nbuild = None\n", "its module has no function build"),
        ("Bad-Name", provider_source("bad"), "a name may contain lower-case letters"),
        ("bad__name", provider_source("bad"), "a name may contain lower-case letters"),
        ("x" * 33, provider_source("bad"), "a name may contain lower-case letters"),
        ("bad", "raise SystemError('a\\nb \\x1b[31m')", "SystemError: "),
    ],
)
def test_a_broken_plugin_is_one_warning_and_the_others_stay(
    beside: Beside, caplog: pytest.LogCaptureFixture, name: str, source: str, why: str
) -> None:
    beside("good", {"good_gpus": provider_source("good")}, {GROUP: {"good": "good_gpus"}})
    beside("bad", {"bad_gpus": source}, {GROUP: {name: "bad_gpus"}})
    assert "good" in providers.names()
    assert name not in providers.names()
    with pytest.raises(KeyError):
        providers.info(name)
    [line] = [record.getMessage() for record in caplog.records]
    assert why in line
    assert line.isprintable()
    assert providers.broken()[name] in line


def test_of_two_packages_with_one_name_the_first_is_taken(beside: Beside, caplog: pytest.LogCaptureFixture) -> None:
    beside(
        "second",
        {"second_gpus": provider_source("acme", extra="console_url='https://second'")},
        {GROUP: {"acme": "second_gpus"}},
    )
    beside(
        "first",
        {"first_gpus": provider_source("acme", extra="console_url='https://first'")},
        {GROUP: {"acme": "first_gpus"}},
    )
    assert providers.info("acme").console_url == "https://first"
    assert [record.getMessage() for record in caplog.records] == [
        "ignoring the provider acme of second-1.0: another package already uses that name"
    ]


def test_other_groups_comments_and_strange_metadata_are_passed_over(beside: Beside, tmp_path: Path) -> None:
    before = providers.names()
    beside("noise", {}, {"console_scripts": {"gpuwatch.x": "a:b"}, "gpuwatch.others": {"x": "y"}, GROUP: {"# c": "d"}})
    (tmp_path / "noise" / "odd-1.0.dist-info").mkdir()
    (tmp_path / "noise" / "odd-1.0.dist-info" / "entry_points.txt").write_bytes(
        b"[gpuwatch.providers]\n\xff\xfe\n= \n["
    )
    (tmp_path / "noise" / "file-1.0.dist-info").write_text("no folder")
    assert providers.names() == before


def test_a_second_copy_of_a_package_is_passed_over(
    beside: Beside, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    entries = {GROUP: {"acme": "acme_gpus"}}
    beside("acme", {"acme_gpus": provider_source("acme")}, entries)
    monkeypatch.syspath_prepend(
        str(install(tmp_path / "copy", "acme", {"acme_gpus": provider_source("acme")}, entries))
    )
    assert "acme" in providers.names()
    assert caplog.records == []


def test_a_mistake_in_a_plugins_search_is_that_providers_failure(beside: Beside) -> None:
    beside("acme", {"acme_gpus": provider_source("acme", body="return {}['secret']")}, {GROUP: {"acme": "acme_gpus"}})
    with pytest.raises(PayloadChanged, match=r"^acme: KeyError in its plugin$"):
        built("acme").market.search(Query())


def test_a_plugin_that_cannot_be_built_fails_when_it_is_asked(beside: Beside) -> None:
    source = provider_source("acme") + "\ndef build(settings, tools):\n    raise OSError('no\\nluck')\n"
    beside("acme", {"acme_gpus": source}, {GROUP: {"acme": "acme_gpus"}})
    adapter = built("acme")
    assert adapter.launcher is None
    with pytest.raises(ProviderError, match=r"^acme: its plugin cannot be used: OSError: no luck$"):
        adapter.market.search(Query())


class _Wrong:
    """A plugin's adapter in which everything fails."""

    name = "acme"

    def __init__(self, error: Exception) -> None:
        self._error = error

    def __getattr__(self, name: str) -> Any:
        def fail(*_: Any) -> Any:
            raise self._error

        return fail


def test_what_a_plugin_was_changing_when_it_failed_is_unknown() -> None:
    wrong: Any = _Wrong(ZeroDivisionError())
    adapter = isolate(Adapter(name="acme", info=providers.info("vastai"), market=wrong, launcher=wrong))
    assert adapter.launcher is not None
    launcher = adapter.launcher
    order = Order(offer_id="1", label="l", image="i", disk_gb=1.0)
    changes = [
        lambda: launcher.create(order),
        lambda: launcher.destroy("1"),
        lambda: launcher.change_bid("1", 1.0),
        lambda: launcher.answer_increase("1", True),
    ]
    for change in changes:
        with pytest.raises(OutcomeUnknown):
            change()
    questions = [launcher.list_instances, launcher.credit_usd, launcher.price_increases]
    for question in [*questions, lambda: launcher.charges(NOW.date(), NOW.date())]:
        with pytest.raises(PayloadChanged):
            question()


class _Listing(BasicLauncher):
    name = "acme"

    def create(self, order: Order) -> Created:
        raise NotImplementedError

    def list_instances(self) -> Sequence[Instance]:
        return ()

    def destroy(self, instance_id: str) -> None:
        raise NotImplementedError


class _Looking(_Listing):
    def get(self, instance_id: str) -> Instance | None:
        if instance_id == "gone":
            return None
        raise ZeroDivisionError


class _Named(_Listing):
    def account_id(self) -> str | None:
        return "account-1"


class _Both(_Looking, _Named):
    pass


@pytest.mark.parametrize("plugin", [_Listing, _Looking, _Named, _Both])
def test_what_a_plugin_can_be_asked_passes_and_nothing_else(plugin: type[_Listing]) -> None:
    wrong: Any = _Wrong(ZeroDivisionError())
    launcher = isolate(Adapter(name="acme", info=providers.info("vastai"), market=wrong, launcher=plugin())).launcher
    assert isinstance(launcher, InstanceLookup) is issubclass(plugin, _Looking)
    assert isinstance(launcher, AccountLookup) is issubclass(plugin, _Named)
    if isinstance(launcher, AccountLookup):
        assert launcher.account_id() == "account-1"
    if isinstance(launcher, InstanceLookup):
        assert launcher.get("gone") is None
        with pytest.raises(PayloadChanged):  # an error in the plugin is never "gone"
            launcher.get("7")


def test_a_plugins_own_errors_pass_as_they_are() -> None:
    limited = RateLimited("acme: slower", 7.0)
    adapter = isolate(Adapter(name="acme", info=providers.info("vastai"), market=_Wrong(limited)))  # type: ignore[arg-type]
    with pytest.raises(RateLimited) as caught:
        adapter.market.search(Query())
    assert caught.value is limited


# --- channels ---------------------------------------------------------------------------------------------------------


def a_pager(beside: Beside, token: str | None = "pager-token-123") -> Any:
    beside("pager", {"pager_channel": CHANNEL}, {"gpuwatch.notifiers": {"pager": "pager_channel"}})
    http = PooledHttpClient()
    try:
        return notifiers.build(ChannelSettings(name="pager", options={"token": token, "volume": 3.0}), http)
    finally:
        http.close()


def test_a_channel_of_another_package_takes_alerts(beside: Beside) -> None:
    channel = a_pager(beside)
    channel.send(an_alert(headline="hello"))
    assert notifiers.names() == ("apprise", "email", "pager", "telegram", "webhook")
    assert channel.name == "pager"
    assert channel._inner.sent == [("hello", 3.0)]


def test_a_mistake_in_a_plugins_channel_is_tried_later_and_tells_no_secret(beside: Beside) -> None:
    with pytest.raises(DeliverLater) as caught:
        a_pager(beside).send(an_alert(headline="break"))
    assert str(caught.value) == "pager: KeyError in its plugin"


def test_a_channel_that_cannot_be_built_refuses_with_the_reason(beside: Beside) -> None:
    source = CHANNEL + "\ndef build(settings, http):\n    raise ValueError('no pager here')\n"
    beside("pager", {"pager_channel": source}, {"gpuwatch.notifiers": {"pager": "pager_channel"}})
    http = PooledHttpClient()
    try:
        channel = notifiers.build(ChannelSettings(name="pager"), http)
    finally:
        http.close()
    with pytest.raises(DeliveryRefused, match="no pager here"):
        channel.send(an_alert())


def test_our_channels_cannot_be_replaced(beside: Beside, caplog: pytest.LogCaptureFixture) -> None:
    beside(
        "evil", {"evil_channel": CHANNEL.replace("pager", "email")}, {"gpuwatch.notifiers": {"email": "evil_channel"}}
    )
    assert notifiers.names() == ("apprise", "email", "telegram", "webhook")
    assert "ignoring the notifier email of evil-1.0" in caplog.text


def test_the_command_sends_through_a_plugins_channel(
    beside: Beside, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    beside("pager", {"pager_channel": CHANNEL}, {"gpuwatch.notifiers": {"pager": "pager_channel"}})
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("GPUWATCH_NOTIFY__PAGER__TOKEN", "pager-token-123")
    assert run(["notify"]) == Exit.DONE
    assert capsys.readouterr().out == "pager: arrived\n"
    assert run(["config", "show"]) == Exit.DONE
    assert "pager-token-123" not in capsys.readouterr().out
