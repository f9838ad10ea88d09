"""Apprise: several services, and URLs that are secrets."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from gpuwatch.errors import DeliverLater, DeliveryRefused
from gpuwatch.notifiers.apprise import AppriseChannel, AppriseSettings
from gpuwatch.ports import Severity
from tests.notifiers.alerts import an_alert

URLS = ("ntfy://token-one-secret/topic", "slack://token-two-secret", "nonsense")


def loaded(fails: set[str]) -> tuple[Any, list[str]]:
    """A stand-in for the library, and the URLs that accepted a message."""
    took: list[str] = []

    class Service:
        def add(self, url: str) -> bool:
            self.url = url
            return "://" in url

        def notify(self, **message: str) -> bool:
            if self.url in fails:
                return False
            took.append(self.url)
            return bool(message["title"] and message["body"])

    return SimpleNamespace(Apprise=Service), took


def channel(urls: tuple[str, ...], fails: set[str]) -> tuple[AppriseChannel, list[str]]:
    module, took = loaded(fails)
    return AppriseChannel(AppriseSettings(urls=urls), import_module=lambda _name: module), took


def test_each_service_gets_it_once_though_another_fails() -> None:
    fails = {URLS[1]}
    made, took = channel(URLS[:2], fails)
    with pytest.raises(DeliverLater) as caught:
        made.send(an_alert())
    fails.clear()
    made.send_remaining(an_alert(), caught.value.taken)
    assert took == [URLS[0], URLS[1]]


def test_an_unknown_address_is_reported_by_its_number() -> None:
    made, took = channel(URLS, set())
    with pytest.raises(DeliveryRefused, match=r"urls\[3\]") as caught:
        made.send(an_alert())
    assert took == [URLS[0], URLS[1]]
    assert caught.value.taken


def test_no_address_is_shown() -> None:
    made, _ = channel(URLS, set(URLS))
    with pytest.raises(DeliverLater) as caught:
        made.send(an_alert())
    assert "secret" not in str(caught.value) + " ".join(caught.value.taken) + repr(AppriseSettings(urls=URLS))


def test_a_check_names_addresses_that_apprise_does_not_know_and_sends_nothing() -> None:
    tried, took = channel(URLS, set())
    with pytest.raises(DeliveryRefused, match=r"unknown service: urls\[3\]") as caught:
        tried.check()
    assert "nonsense" not in str(caught.value)
    tried, _ = channel(URLS[:2], set())
    assert tried.check() == "knows all 2 addresses"
    assert took == []


@pytest.mark.parametrize(
    ("severity", "kind"), [(Severity.INFO, "info"), (Severity.WARNING, "warning"), (Severity.CRITICAL, "failure")]
)
def test_the_severity_is_apprises_type_and_without_a_sound_it_is_information(severity: Severity, kind: str) -> None:
    kinds: list[str] = []

    class Service:
        def add(self, url: str) -> bool:
            return True

        def notify(self, **message: str) -> bool:
            kinds.append(message["notify_type"])
            return True

    sending = AppriseChannel(
        AppriseSettings(urls=URLS[:1]), import_module=lambda _name: SimpleNamespace(Apprise=Service)
    )
    sending.send(an_alert(severity=severity))
    sending.send_silently(an_alert(severity=severity))
    assert kinds == [kind, "info"]
