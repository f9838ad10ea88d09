"""A person adds a watch, changes it with a wrong value first, pauses and silences it; also without JavaScript."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from gpuwatch.bootstrap.settings_loading import load_settings
from tests.web import chromium
from tests.web.served import Served, file_of

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = [chromium.needs_browser, pytest.mark.slow]


def reload(web: Served) -> None:
    """Do what the daemon does when it is asked to reload."""
    assert web.reloads.pop() == 1
    web.context.use(load_settings(str(web.folder / "gpuwatch.toml")))


@pytest.mark.parametrize("has_script", [True, False], ids=["script", "no-script"])
def test_a_watch_is_added_changed_paused_and_silenced(web: Served, has_script: bool) -> None:
    wanted = {"java_script_enabled": has_script}
    with chromium.started() as browser, chromium.page_at(browser, web.url, chromium.PHONE, **wanted) as page:
        page.request.post(f"{web.url}/api/v1/session", data={"code": web.codes[-1]})
        page.goto("/watches/new")
        page.get_by_label("Name", exact=True).fill("a100-night")
        gpus = page.locator(".tokens input").first if has_script else page.locator('[name="f.gpu"]')
        gpus.fill("A100")
        page.locator('[name="f.max_price"]').fill("1.20")
        page.get_by_role("button", name="Save…").click()
        page.wait_for_url("**/watches")
        reload(web)
        page.goto("/watches?fresh=yes")
        assert page.get_by_role("link", name="a100-night", exact=True).count() == 1
        assert 'name = "a100-night"' in file_of(web)

        page.goto("/watches/a100-night/edit")
        page.locator('[name="f.max_price"]').fill("cheap")
        page.get_by_role("button", name="Save…").click()
        field = page.locator('[aria-invalid="true"]')
        field.wait_for()
        assert field.input_value() == "cheap"
        assert "cheap" not in file_of(web).replace('name = "cheap"', "")
        field.fill("1.10")
        if has_script:
            page.get_by_text("On sale now").wait_for()  # by itself
        page.get_by_label("Rent by itself").check()
        page.locator('[name="f.launch.max_runtime"]').fill("2")
        page.get_by_role("button", name="Save…").click()
        page.get_by_text("It rents without asking.").wait_for()
        assert (page.locator("dialog[open]").count() == 1) is has_script
        page.get_by_role("button", name="Save it").click()
        page.wait_for_url("**/watches")
        assert "max_price = 1.10" in file_of(web)
        reload(web)

        pause_and_silence(page, has_script=has_script)


def pause_and_silence(page: Page, *, has_script: bool) -> None:
    """From the watch's page: a sheet with a form in it, or a page."""
    page.goto("/watches/a100-night")
    page.get_by_role("link", name="Silence…").click()
    page.get_by_role("button", name="6 hours").wait_for()
    assert (page.locator("dialog[open]").count() == 1) is has_script
    page.get_by_role("button", name="6 hours").click()
    page.get_by_text("is silenced until").wait_for()
    page.get_by_role("link", name="Pause…").click()
    page.get_by_label("For how long", exact=True).fill("long")
    assert (page.locator("dialog[open]").count() == 1) is has_script
    page.get_by_role("button", name="Pause", exact=True).click()
    wrong = page.locator('[aria-invalid="true"]')
    wrong.wait_for()
    assert wrong.input_value() == "long", "the sheet stays open, and keeps what was typed"
    wrong.fill("8")
    page.get_by_label("Why", exact=True).fill("budget")
    page.get_by_role("button", name="Pause", exact=True).click()
    page.get_by_text("Watch a100-night is paused.").wait_for()
    assert page.evaluate("document.documentElement.scrollWidth") <= chromium.PHONE[0]
