"""The list of watches, and what the form of one may write."""

from __future__ import annotations

import html
import re

import httpx
import pytest

from tests.web.served import PAGE, Served, file_of, page


def post(web: Served, path: str, token: str, **fields: str) -> httpx.Response:
    edit = page(web, "/watches/edit?name=cheap")
    version = re.search(r'name="version" value="([0-9a-f]+)"', edit)
    assert version is not None
    form = {"csrf_token": token, "name_of": "cheap", "version": version[1], **fields}
    return web.client.post(path, data=form, headers=PAGE)


def test_each_watch_has_a_row_and_a_form(web: Served) -> None:
    assert 'href="/watches/cheap"' in page(web, "/watches")
    assert "set.max_price" not in page(web, "/watches/edit?name=cheap"), "its settings are the owner's"
    web.log_in()
    edit = page(web, "/watches/edit?name=cheap")
    assert 'name="set.max_price" value="2.40"' in edit
    assert "a-secret-key" not in edit
    assert "on_running" not in edit, "what runs here is not changed from here"


def test_a_preview_asks_the_market_and_writes_nothing(web: Served) -> None:
    before = file_of(web)
    shown = html.unescape(post(web, "/watches/preview", web.log_in(), **{"set.max_price": "3.50"}).text)
    assert "+max_price = 3.50   # the limit" in shown
    assert "-max_price = 2.40   # the limit" in shown
    assert "1× H100 SXM at vastai" in shown
    assert 'name="set.max_price" value="3.50"' in shown, "what was typed stays"
    assert file_of(web) == before
    assert web.reloads == []


def test_saving_writes_the_file_with_its_comments_and_has_it_read(web: Served) -> None:
    answer = post(web, "/watches/save", web.log_in(), **{"set.max_price": "3.00"})
    assert (answer.status_code, answer.headers["location"]) == (303, "/watches")
    assert "max_price = 3.00   # the limit" in file_of(web)
    assert "# mine" in file_of(web)
    assert web.reloads == [1]
    assert "Saved in " in page(web, "/watches")
    assert "watch cheap saved" in page(web, "/alerts?kind=audit")


def test_a_watch_that_rents_is_asked_about_before_it_is_saved(web: Served) -> None:
    fields = {"set.action": "launch", "set.launch.max_runtime": "2h"}
    token, before = web.log_in(), file_of(web)
    asked = html.unescape(post(web, "/watches/save", token, **fields).text)
    assert "It rents without approval." in asked
    assert file_of(web) == before
    assert post(web, "/watches/save", token, **fields, confirmed="yes").status_code == 303
    assert 'action = "launch"' in file_of(web)


def test_wrong_values_are_shown_beside_the_form_and_not_written(web: Served) -> None:
    token, before = web.log_in(), file_of(web)
    for path in ("/watches/preview", "/watches/backtest", "/watches/save"):
        answer = post(web, path, token, **{"set.max_price": "cheap"})
        assert answer.status_code == 200
        assert 'role="alert"' in answer.text
        assert "max_price" in answer.text
    assert file_of(web) == before


@pytest.mark.parametrize("key", ["launch.on_running", "launch.env", "launch.onstart_file", "__class__"])
def test_a_forged_field_cannot_reach_what_runs_here(web: Served, key: str) -> None:
    before = file_of(web)
    answer = post(web, "/watches/save", web.log_in(), **{f"set.{key}": "touch /tmp/owned"})
    assert "cannot be edited here" in answer.text
    assert file_of(web) == before


def test_a_file_that_changed_meanwhile_is_left_alone(web: Served) -> None:
    token = web.log_in()
    form = {"csrf_token": token, "name_of": "cheap", "version": "0" * 16, "set.max_price": "3.00"}
    answer = web.client.post("/watches/save", data=form, headers=PAGE)
    assert "has changed in the meantime" in answer.text
    assert "3.00" not in file_of(web)


def test_without_a_session_or_its_token_nothing_is_changed(web: Served) -> None:
    form = {"name_of": "cheap", "version": "0", "set.max_price": "3.00"}
    assert web.client.post("/watches/save", data=form, headers=PAGE).status_code in {401, 403}
    web.log_in()
    assert web.client.post("/watches/save", data=form, headers=PAGE).status_code == 403
    assert "3.00" not in file_of(web)


def test_a_file_that_cannot_be_written_is_offered_for_copying(web: Served) -> None:
    (web.folder / "gpuwatch.toml").rename(web.folder / "real.toml")
    locked = web.folder / "gpuwatch.toml"
    locked.symlink_to("/proc/version")  # not writable there, not even for root
    try:
        answer = web.client.get("/watches/edit?name=cheap", headers=PAGE)
        assert answer.status_code >= 400, "that file is no TOML: one line, no traceback"
        assert "Traceback" not in answer.text
    finally:
        locked.unlink()


def test_a_new_watch_is_begun_with_what_the_address_says(web: Served) -> None:
    token = web.log_in()
    assert 'name="set.gpu" value="A100"' in page(web, "/watches/edit?gpu=A100&max_price=1.2")
    version = re.search(r'name="version" value="([0-9a-f]+)"', page(web, "/watches/edit"))
    assert version is not None
    form = {
        "csrf_token": token,
        "name_of": "",
        "version": version[1],
        "set.name": "new",
        "set.gpu": "A100",
        "set.max_price": "1.2",
    }
    assert web.client.post("/watches/save", data=form, headers=PAGE).status_code == 303
    assert 'name = "new"' in file_of(web)


def test_the_backtest_says_what_the_history_allows(web: Served) -> None:
    answer = post(web, "/watches/backtest", web.log_in(), **{"set.max_price": "3.00"})
    assert "Backtest over the last 14 days" in answer.text


def test_start_up_commands_are_shown_to_who_may_manage(web: Served) -> None:
    file = web.folder / "gpuwatch.toml"
    file.write_text(file.read_text() + '[watch.launch]\nonstart = "run --flag its-own-business"\n')
    for path in ("/settings?q=launch", "/watches/edit?name=cheap", "/settings?all=yes"):
        assert "its-own-business" not in page(web, path)
    web.log_in()
    assert "its-own-business" in page(web, "/watches/edit?name=cheap")
