"""The pages of a machine whose disk is kept, and of one without GPUs: what they cost, and where the state stands."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from gpuwatch.bootstrap import real_now
from gpuwatch.domain.launches.kept_disk import KeptDisk
from gpuwatch.domain.launches.launch import InstanceCondition, PriceSpan
from tests.web.chromium import needs_browser, started
from tests.web.launches.test_launch_pages import HOUR, ID, RENTS, plain, stored
from tests.web.served import Served, page, served, serving_settings, settings_in

_WITHOUT_GPUS = "c" * 12
# the state of a machine, and its buttons, as rectangles
_OVERLAPS = """() => [...document.querySelectorAll(".machine")].filter(one => {
  const [state, acts] = [".use", ".acts"].map(name => one.querySelector(name));
  const [a, b] = [state.firstElementChild ?? state, acts].map(box => box.getBoundingClientRect());
  return state.textContent.trim() && a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom;
}).length"""


def _stored(web: Served) -> None:
    now = real_now()
    spans = (PriceSpan(now - 3 * HOUR, 3_000_000, 3_600_000), PriceSpan(now - HOUR, 20_000, 24_000))
    kept = KeptDisk(keep_s=48 * 3600.0, why="you stopped it", stopped_at=now - HOUR)
    is_stopped = {"condition": InstanceCondition.STOPPED, "condition_since": now - HOUR, "kept": kept}
    stored(web.context.settings, spans=spans, disk_microusd_hour=20_000, max_runtime_s=50 * 3600.0, **is_stopped)
    rate = {"listed_microusd_hour": 60_000, "price_microusd_hour": 72_000}
    spans = (PriceSpan(now - 3 * HOUR, *rate.values()),)
    without = {"gpu": "none", "gpu_count": 0, "offer_id": "2002", "instance_id": "44700009", "spans": spans}
    stored(web.context.settings, launch_id=_WITHOUT_GPUS, watch="prepare", **without, **rate)


def test_a_rate_that_contains_a_disk_says_so_and_more_hours_of_it_cost_the_disk(tmp_path: Path) -> None:
    with served(tmp_path, more=RENTS) as web:
        _stored(web)
        web.log_in()
        listed = plain(page(web, "/launches"))
        assert "1 machine runs for $0.096/h. The disk of 1 more is kept; the rate contains it." in listed
        assert "GPU unknown" not in listed
        extend = plain(re.sub(r"<[^>]+>", "", page(web, f"/launches/{ID}/extend")))
        assert "Each further hour costs at most $0.024/h." in extend


@needs_browser
@pytest.mark.slow
def test_no_button_covers_the_state_of_a_machine(tmp_path: Path) -> None:
    settings = settings_in(tmp_path, f'language = "auto"\n[web]\nlisten = "127.0.0.1:0"\n{RENTS}')
    with serving_settings(settings, tmp_path) as web, started() as browser:
        _stored(web)
        web.log_in()
        cookies = [{"name": name, "value": value, "url": web.url} for name, value in web.client.cookies.items()]
        for language in ("en", "ru"):
            for width in (360, 390, 900, 1280):
                context = browser.new_context(locale=language, viewport={"width": width, "height": 800})
                context.add_cookies(cookies)  # type: ignore[arg-type]
                shown = context.new_page()
                shown.goto(f"{web.url}/launches")
                assert shown.locator(".machine .acts button").count() >= 4
                assert shown.evaluate(_OVERLAPS) == 0, (language, width)
                context.close()
