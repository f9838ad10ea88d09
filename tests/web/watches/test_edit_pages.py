"""The form of a watch: what it shows, what it may write, and what it says about a wrong value."""

from __future__ import annotations

import html

import httpx
import pytest

from tests.web.forms import form_fields
from tests.web.served import PAGE, Served, file_of, page

EDIT = "/watches/cheap/edit"


def send(web: Served, path: str, token: str, page_of: str = EDIT, **fields: str) -> httpx.Response:
    """Send the form as a browser does, with some of its fields changed."""
    form = form_fields(web.client.get(page_of, headers=PAGE).text, "/watches/save")
    return web.client.post(path, data={**form, "csrf_token": token, **fields}, headers=PAGE)


def text_of(answer: httpx.Response) -> str:
    assert answer.status_code == 200, answer.text
    return html.unescape(answer.text)


def test_the_form_is_the_owners(web: Served) -> None:
    assert "f.max_price" not in page(web, EDIT), "its settings are the owner's"
    web.log_in()
    edit = page(web, EDIT)
    assert 'name="f.max_price" value="2.40"' in edit
    assert "a-secret-key" not in edit
    assert "on_running" not in edit, "what runs here is not changed from here"


def test_the_former_address_leads_to_the_form(web: Served) -> None:
    answer = web.client.get("/watches/edit?name=cheap", headers=PAGE)
    assert (answer.status_code, answer.headers["location"]) == (303, EDIT)
    answer = web.client.get("/watches/edit?gpu=A100", headers=PAGE)
    assert answer.headers["location"] == "/watches/new?gpu=A100"


def test_what_nobody_touched_changes_nothing(web: Served) -> None:
    before, token = file_of(web), web.log_in()
    answer = send(web, "/watches/save", token)
    assert answer.status_code == 303
    assert file_of(web) == before
    assert "Nothing changed." in page(web, "/watches")


def test_check_again_writes_nothing_and_shows_the_change(web: Served) -> None:
    before, token = file_of(web), web.log_in()
    shown = text_of(send(web, "/watches/preview", token, **{"f.max_price": "3.50"}))
    assert "max_price = 3.50   # the limit" in shown
    assert "max_price = 2.40   # the limit" in shown
    assert 'name="f.max_price" value="3.50"' in shown, "what was typed stays"
    assert "On sale now" in shown
    assert " data-once>" in shown, "the script does not read an address that takes forms alone"
    assert " data-once>" not in web.client.get("/watches", headers=PAGE).text
    assert file_of(web) == before
    assert web.reloads == []


def test_saving_writes_the_file_with_its_comments_and_has_it_read(web: Served) -> None:
    answer = send(web, "/watches/save", web.log_in(), **{"f.max_price": "3.00"})
    assert (answer.status_code, answer.headers["location"]) == (303, "/watches")
    assert "max_price = 3.00   # the limit" in file_of(web)
    assert 'name = "cheap"     # the name' in file_of(web)
    assert "# mine" in file_of(web)
    assert web.reloads == [1]
    assert "Saved in " in page(web, "/watches")


def test_fields_for_people_become_settings(web: Served) -> None:
    fields = {
        "f.gpu": "H100, A100 SXM", "f.gpu_count_from": "1", "f.gpu_count_to": "4", "f.min_reliability": "97.5",
        "f.launch.max_runtime": "36", "f.launch.max_runtime_unit": "h", "f.verified": "yes", "f.regions": "EU",
        "f.spot": "any", "f.active": "22:00-08:00", "set.min_cuda": "12.4",
    }  # fmt: skip
    assert send(web, "/watches/save", web.log_in(), **fields).status_code == 303
    written = file_of(web)
    for line in (
        'gpu = ["H100", "A100 SXM"]', "gpu_count = {min = 1, max = 4}", "min_reliability = 0.975", "verified = true",
        'max_runtime = "36h"', 'regions = ["EU"]', 'spot = "any"', 'active = ["22:00-08:00"]', "min_cuda = 12.4",
    ):  # fmt: skip
        assert line.replace(" ", "") in written.replace(" ", ""), line
    again = form_fields(web.client.get(EDIT, headers=PAGE).text, "/watches/save")
    assert {key: again[key] for key in fields} == fields


def test_the_limit_changes_its_kind(web: Served) -> None:
    token = web.log_in()
    fields = {"f.max_price": "4", "f.max_price_unit": "auto", "set.deadline": "30d"}
    assert send(web, "/watches/save", token, **fields).status_code == 303
    assert 'max_price = "auto"' in file_of(web)
    assert "max_price_cap = 4" in file_of(web)
    assert form_fields(web.client.get(EDIT, headers=PAGE).text, "/watches/save")["f.max_price"] == "4"


def test_a_watch_that_rents_is_asked_about_before_it_is_saved(web: Served) -> None:
    fields = {"f.action": "launch", "f.launch.max_runtime": "2"}
    token, before = web.log_in(), file_of(web)
    asked = text_of(send(web, "/watches/save", token, **fields))
    assert "It rents without asking." in asked
    assert "Most it can cost" in asked
    assert file_of(web) == before
    assert send(web, "/watches/save", token, **fields, confirmed="yes").status_code == 303
    assert 'action = "launch"' in file_of(web)


@pytest.mark.parametrize(
    ("name", "text"),
    [("f.max_price", "cheap"), ("f.gpu", "H1000"), ("f.gpu_count_from", "few"), ("f.min_reliability", "300"),
     ("f.launch.max_runtime", "long"), ("set.min_cuda", "new"), ("f.regions", "Nowhere")],
)  # fmt: skip
def test_a_wrong_value_is_said_at_its_field_and_not_written(web: Served, name: str, text: str) -> None:
    token, before = web.log_in(), file_of(web)
    for path in ("/watches/preview", "/watches/save"):
        shown = text_of(send(web, path, token, **{name: text}))
        at = shown.index('aria-invalid="true"')
        assert name.removesuffix("_from") in shown[max(0, at - 600) : at + 300], "at its field"
        assert f'value="{text}"' in shown, "typed text stays"
        assert 'role="alert"' in shown
    assert file_of(web) == before


@pytest.mark.parametrize("key", ["launch.on_running", "launch.env", "launch.onstart_file", "__class__"])
def test_a_forged_field_cannot_reach_what_runs_here(web: Served, key: str) -> None:
    before = file_of(web)
    answer = send(web, "/watches/save", web.log_in(), **{f"set.{key}": "touch /tmp/owned"})
    assert "cannot be edited here" in answer.text
    assert file_of(web) == before


@pytest.mark.parametrize("base", ["", "[]", "{", '{"max_price": 3}', "x" * 100_000])
def test_a_forged_base_writes_only_what_the_form_holds(web: Served, base: str) -> None:
    answer = send(web, "/watches/save", web.log_in(), base=base, **{"f.max_price": "3.00"})
    assert answer.status_code in {200, 303}
    assert "on_running" not in file_of(web)


def test_a_file_that_changed_meanwhile_shows_both_and_takes_one(web: Served) -> None:
    token = web.log_in()
    form = form_fields(web.client.get(EDIT, headers=PAGE).text, "/watches/save") | {
        "csrf_token": token,
        "f.max_price": "3.00",
    }
    file = web.folder / "gpuwatch.toml"
    file.write_text(file.read_text().replace('gpu = ["H100"]', 'gpu = ["H100"]\nmin_vram_gib = 80'))
    answer = web.client.post("/watches/save", data=form, headers=PAGE)
    shown = text_of(answer)
    assert "The file has changed meanwhile" in shown
    assert "min_vram_gib = 80" in shown
    assert "max_price = 3.00" not in file_of(web)
    mine = form_fields(answer.text, "/watches/save") | {"csrf_token": token}
    assert web.client.post("/watches/save", data=mine, headers=PAGE).status_code == 303
    assert "max_price = 3.00" in file_of(web)
    assert "min_vram_gib = 80" in file_of(web), "what they changed stays"


def test_without_a_session_or_its_token_nothing_is_changed(web: Served) -> None:
    form = {"name_of": "cheap", "version": "0", "full": "yes", "f.max_price": "3.00"}
    assert web.client.post("/watches/save", data=form, headers=PAGE).status_code in {401, 403}
    web.log_in()
    assert web.client.post("/watches/save", data=form, headers=PAGE).status_code == 403
    assert "3.00" not in file_of(web)


def test_a_file_that_is_no_settings_file_is_one_line(web: Served) -> None:
    (web.folder / "gpuwatch.toml").rename(web.folder / "real.toml")
    locked = web.folder / "gpuwatch.toml"
    locked.symlink_to("/proc/version")  # not writable there, not even for root
    try:
        answer = web.client.get(EDIT, headers=PAGE)
        assert answer.status_code >= 400, "that file is no TOML: one line, no traceback"
        assert "Traceback" not in answer.text
    finally:
        locked.unlink()


def test_a_new_watch_is_begun_with_what_the_address_says(web: Served) -> None:
    token = web.log_in()
    new = "/watches/new?gpu=A100&max_price=1.2"
    assert 'name="f.gpu" value="A100"' in page(web, new)
    assert send(web, "/watches/save", token, new, **{"f.name": "new"}).status_code == 303
    assert 'name = "new"' in file_of(web)
    assert "max_price = 1.2" in file_of(web)


def test_start_up_commands_are_shown_to_who_may_manage(web: Served) -> None:
    file = web.folder / "gpuwatch.toml"
    file.write_text(file.read_text() + '[watch.launch]\nonstart = "run --flag its-own-business"\nenv = {A = "b"}\n')
    for path in ("/settings?q=launch", EDIT, "/watches/cheap", "/settings?all=yes"):
        assert "its-own-business" not in page(web, path)
    web.log_in()
    edit = page(web, EDIT)
    assert "its-own-business" in edit
    assert "Set in the file: environment." in edit
