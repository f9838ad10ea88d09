"""What the store has about providers is read for all at once, and a page reads prices once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import Engine, event

from gpuwatch.app.market.provider_status import provider_statuses
from gpuwatch.bootstrap import real_now
from gpuwatch.settings import Settings
from gpuwatch.storage.history.recording.history_recorder import SqlHistoryRecorder
from gpuwatch.storage.setup.database import open_database
from gpuwatch.web.market.gpu_prices import gpu_prices
from gpuwatch.web.page import View
from tests.builders import changed
from tests.storage.stored_answers import an_answer, an_offer
from tests.web.served import settings_in

NAMES = ("vastai", "runpod", "tensordock", "shadeform", "lambda")


@contextmanager
def counted_statements() -> Iterator[Counter[str]]:
    found: Counter[str] = Counter()

    def note(_conn: Any, _cursor: Any, statement: str, *_: Any) -> None:
        found[statement] += 1

    event.listen(Engine, "before_cursor_execute", note)
    try:
        yield found
    finally:
        event.remove(Engine, "before_cursor_execute", note)


def of_providers(folder: Path, *names: str) -> Settings:
    folder.mkdir()
    settings = settings_in(folder, "".join(f'[providers.{name}]\napi_key = "demo-key"\n' for name in names))
    store = open_database(settings.database_url)
    recorder = SqlHistoryRecorder(store)
    for name in names:
        offer = changed(an_offer(), provider=name)
        answer = changed(an_answer(offer, observed_at=real_now()), provider=name)
        recorder.record(answer, lane="sweep", gpu="H100 SXM", spot=False)
    store.close()
    return settings


def test_more_providers_are_read_with_as_many_statements(tmp_path: Path) -> None:
    counts = []
    for names in (NAMES[:1], NAMES):
        settings = of_providers(tmp_path / str(len(names)), *names)
        with counted_statements() as found:
            statuses = provider_statuses(settings, only_enabled=True, with_polling=False)
        assert {status.provider for status in statuses if status.swept_at and status.last_poll} == set(names)
        counts.append(found.total())
    assert counts[0] == counts[1]


def test_the_page_of_a_gpu_reads_its_prices_once(tmp_path: Path) -> None:
    settings = of_providers(tmp_path / "one", "vastai")
    view = View(settings=settings, now=real_now(), query={}, path={"name": "H100 SXM"})
    with counted_statements() as found:
        page = gpu_prices(view)
    assert page["answer"]
    assert page["offers"]
    reads = [count for text, count in found.items() if "FROM price_interval" in text or "JOIN price_interval" in text]
    assert reads
    assert max(reads) <= 2, "the evidence and the limits of watches, not each part of the page"
