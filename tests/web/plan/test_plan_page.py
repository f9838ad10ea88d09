"""A plan on the market in the store, and the watch that it becomes."""

from __future__ import annotations

import re

from gpuwatch.bootstrap import real_now
from gpuwatch.storage.history.recording.history_recorder import SqlHistoryRecorder
from gpuwatch.storage.setup.database import open_database
from tests.builders import an_offer
from tests.engine.uow_fakes import an_answer
from tests.web.served import PAGE, Served, file_of, page

_ON_SALE = [("H100 SXM", "H100", 2.0), ("A100 SXM 80GB", "A100", 1.0)]


def test_a_plan_becomes_a_watch(web: Served) -> None:
    """From the market in the store; the watch only alerts, and its owner confirms first."""
    store, now = open_database(web.context.settings.database_url), real_now()
    for gpu, family, usd in _ON_SALE:
        offer = an_offer(
            offer_id=gpu, machine_id=gpu, gpu=gpu, gpu_family=family, gpu_wire=gpu, quoted_usd_hour=usd,
            observed_at=now, reliability=0.999,
        )  # fmt: skip
        SqlHistoryRecorder(store).record(an_answer(offer, at=now), lane="sweep", gpu=gpu, spot=False)
    store.close()
    asked = "model=8B&method=qlora&tokens=100M&max_cost=100&within=96h"
    shown = page(web, f"/plan?{asked}")
    assert "2 can run the job" in shown
    assert re.search(r"max_job_cost += 100\n", shown)
    for wrong in ("model=nonsense-9&tokens=1M", "model=8B&tokens=much", "model=8B&tokens=1M&batch=0&max_cost=-1"):
        assert 'role="alert"' in page(web, f"/plan?{wrong}")
    token, fields = web.log_in(), dict(part.split("=") for part in asked.split("&"))
    form = {"csrf_token": token, "name": "planned", **fields}
    assert "Add watch planned?" in web.client.post("/plan/watch", data=form, headers=PAGE).text
    assert "planned" not in file_of(web)
    assert web.client.post("/plan/watch", data={**form, "confirmed": "yes"}, headers=PAGE).status_code == 303
    assert '"planned"' in file_of(web)
    assert web.reloads == [1]
