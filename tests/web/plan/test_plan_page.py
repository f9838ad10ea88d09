"""A plan on the market in the store, and the job or the watch that it becomes."""

from __future__ import annotations

import re
import tomllib
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

from gpuwatch.app.jobs.jobs import listed_jobs
from gpuwatch.bootstrap import real_now
from gpuwatch.storage.history.recording.history_recorder import SqlHistoryRecorder
from gpuwatch.storage.setup.database import open_database
from tests.builders import an_offer
from tests.engine.uow_fakes import an_answer
from tests.web.chromium import PHONE, needs_browser, overflow, page_at, serious_findings
from tests.web.served import PAGE, Served, file_of, page

if TYPE_CHECKING:
    from playwright.sync_api import Browser

_ON_SALE = (("H100 SXM", "H100", 2.0), ("A100 SXM 80GB", "A100", 1.0))
_ASKED = {"model": "8B", "method": "qlora", "tokens": "100M", "max_cost": "100", "within": "96h"}
_PLAN = "/plan?model=8B&method=qlora&tokens=100M&max_cost={}&within=96h"


def _on_sale(web: Served, *offers: tuple[str, str, float], **changes: Any) -> None:
    store, now = open_database(web.context.settings.database_url), real_now()
    for gpu, family, usd in offers or _ON_SALE:
        offer = an_offer(
            offer_id=gpu, machine_id=gpu, gpu=gpu, gpu_family=family, gpu_wire=gpu, quoted_usd_hour=usd,
            observed_at=now, reliability=0.999, **changes,
        )  # fmt: skip
        SqlHistoryRecorder(store).record(an_answer(offer, at=now), lane="sweep", gpu=gpu, spot=False)
    store.close()


def _answer(text: str) -> str:
    found = re.search(r'<p class="answer"><b>(.*?)</b>', text)
    return "" if found is None else found[1]


def test_the_answer_says_whether_it_fits_and_the_rows_say_why_not(web: Served) -> None:
    _on_sale(web)
    fits = page(web, _PLAN.format(100))
    assert re.fullmatch(r"It fits: \$\S+ to \$\S+ on 1× \w+ .*, done in \S+ to \S+\Wh\.", _answer(fits))
    assert "2 of 2 offers can run it." in fits
    assert fits.count("cheapest in the worst case") == 1
    assert "Unknown: there is too little history of " in fits
    assert "These may break one of your limits" not in fits
    worst = max(float(one) for one in re.findall(r"<b>\$[\d.]+–([\d.]+)</b>", fits))
    low = min(float(one) for one in re.findall(r"<b>\$([\d.]+)–", fits))
    unsure = page(web, _PLAN.format((low + worst) / 3))
    assert _answer(unsure).startswith("Uncertain: ")
    assert "may cost over" in unsure
    never = page(web, _PLAN.format(0.01))
    assert re.fullmatch(r"No offer fits: the cheapest is \$\S+, you allow \$0\.01\.", _answer(never))
    assert "costs over $0.01" in never
    assert "Make a job" not in never
    slow = page(web, "/plan?model=8B&method=qlora&tokens=100M&within=1&within_unit=h")
    assert re.fullmatch(r"No offer fits in 60\Wmin: the cheapest takes up to \d+ h and costs \$\S+\.", _answer(slow))
    assert _answer(page(web, "/plan?model=8B&tokens=100&tokens_unit=M")).startswith("The cheapest: ")


def test_without_offers_or_a_question_the_page_says_what_to_do(web: Served) -> None:
    assert "Start from" in page(web, "/plan")
    assert "No offers are known" in page(web, _PLAN.format(100))


def test_what_is_wrong_stands_at_its_field_and_what_was_typed_stays(web: Served) -> None:
    _on_sale(web)
    for query, field, typed in (
        ("model=nonsense-9&tokens=1M", "model", "nonsense-9"),
        ("model=8B&tokens=much", "tokens", "much"),
        ("model=8B", "tokens", ""),
        ("model=8B&tokens=1M&batch=0", "batch", "0"),
        ("model=8B&tokens=1M&max_cost=-1", "max_cost", "-1"),
        ("model=8B&tokens=1M&count=many", "count", "many"),
        ("model=8B&tokens=1M&spot=only", "interruptions_per_day", ""),
        ("model=/etc/config.json&tokens=1M", "model", "/etc/config.json"),
    ):
        shown = page(web, f"/plan?{query}")
        field_text = shown[shown.index(f'name="{field}"') :][:400]
        assert 'aria-invalid="true"' in field_text, query
        assert f'value="{typed}"' in field_text, query
        assert not re.search(r"--\w|\bmax_cost:|\btokens:", re.sub(r"<[^>]+>", "", shown)), query


def test_a_plan_becomes_a_job_file_that_is_never_overwritten(web: Served) -> None:
    """Its owner confirms first; only with a tick the job is queued, too."""
    _on_sale(web)
    form = {"csrf_token": web.log_in(), **_ASKED, "name": "train-8b", "command": "python train.py"}
    file = web.folder / "jobs" / "train-8b.toml"

    def post(**changes: str) -> Any:
        return web.client.post("/plan/job", data={**form, **changes}, headers=PAGE)

    asked = post()
    assert ("Write the job train-8b?" in asked.text, "at most $100" in asked.text) == (True, True)
    assert not file.exists()
    assert post(confirmed="yes").status_code == 303
    written = file.read_bytes()
    job = tomllib.loads(written.decode())
    assert (job["name"], job["command"], job["limit"]) == ("train-8b", "python train.py", {"max_usd": 100})
    assert not listed_jobs(web.context.settings)
    again = post(confirmed="yes", command="python other.py")
    assert "jobs/train-8b.toml exists. Choose another name; nothing was overwritten." in again.text
    assert "python other.py" in again.text
    assert file.read_bytes() == written
    for name in ("../up", "a/b", "", "a b", "<script>"):
        answer = post(name=name, confirmed="yes")
        assert "such as qlora-8b" in answer.text, name
        assert "<script>" not in answer.text.partition("<main")[2], name
    assert sorted(one.name for one in file.parent.glob("*.toml")) == ["train-8b.toml"]
    picked = {"pick": "1|H100 SXM|vastai", "name": "on-h100", "queue": "yes"}
    assert "Queue the job on-h100?" in post(**picked).text
    assert post(**picked, confirmed="yes").headers["location"] == "/jobs/on-h100"
    assert tomllib.loads((file.parent / "on-h100.toml").read_text())["resources"]["gpu"] == ["H100 SXM"]
    assert [one.name for one in listed_jobs(web.context.settings)] == ["on-h100"]


def test_a_job_needs_the_right_to_manage_and_the_token_of_the_page(web: Served) -> None:
    _on_sale(web)
    form = {**_ASKED, "name": "x", "command": "true", "confirmed": "yes"}
    assert web.client.post("/plan/job", data=form, headers=PAGE).status_code in {303, 401, 403}
    assert "Log in to make a job or a watch of it" in page(web, _PLAN.format(100))
    web.log_in()
    assert web.client.post("/plan/job", data=form, headers=PAGE).status_code == 403
    assert not (web.folder / "jobs").exists()


def test_a_plan_fills_in_the_form_of_a_watch_and_saves_nothing(web: Served) -> None:
    _on_sale(web)
    before = file_of(web)
    form = {"csrf_token": web.log_in(), **_ASKED, "name": "planned", "pick": "1|H100 SXM|vastai", "as": "watch"}
    answer = web.client.post("/plan/job", data=form, headers=PAGE)
    address = urlsplit(answer.headers["location"])
    keys = {key: text[0] for key, text in parse_qs(address.query).items()}
    assert (address.path, keys["gpu"], keys["gpu_count"]) == ("/watches/new", '["H100 SXM"]', "{ min = 1, max = 1 }")
    hours = float(keys["launch.max_runtime"].removesuffix("h")) / 1.25
    assert 0 < float(keys["max_price"]) * (hours - 1) <= 100
    assert file_of(web) == before


def test_names_of_a_market_are_shown_and_never_run(web: Served) -> None:
    hostile = "<img src=x onerror=alert(1)>"
    _on_sale(web, region=hostile)
    text = web.client.get(_PLAN.format(100), headers=PAGE).text
    assert hostile not in text
    assert 'value="&#34;&gt;&lt;b&gt;"' in web.client.get("/plan?model=%22%3E%3Cb%3E&tokens=1", headers=PAGE).text


@needs_browser
def test_a_phone_plans_a_job_and_makes_it_with_and_without_a_script(web: Served, browser: Browser) -> None:
    _on_sale(web)
    token = web.log_in()
    assert token
    cookies = [{"name": one.name, "value": str(one.value), "url": web.url} for one in web.client.cookies.jar]
    for script in (True, False):
        name = f"job-{script}".lower()
        with page_at(browser, web.url, PHONE, java_script_enabled=script) as shown:
            shown.context.add_cookies(cookies)  # type: ignore[arg-type]
            shown.goto("/plan")
            shown.get_by_role("link", name="QLoRA, 8B").click()
            assert shown.get_by_text(re.compile("^(It fits|Uncertain): ")).is_visible()
            assert overflow(shown) == 0
            if script:
                assert not serious_findings(shown)
            shown.get_by_role("radio").nth(1).check()
            shown.get_by_role("button", name="Make a job").click()
            shown.get_by_text("Write what the machine runs").wait_for()
            shown.get_by_label("Command").fill("python train.py")
            shown.get_by_label("Name").fill(name)
            shown.get_by_role("button", name="Make a job").click()
            shown.get_by_role("button", name="Write it").click()
            shown.get_by_text(re.compile("^Wrote ")).wait_for()
            assert (web.folder / "jobs" / f"{name}.toml").exists()
