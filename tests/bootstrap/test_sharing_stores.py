"""A page runs several use cases over one opened store."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from datetime import timedelta
from pathlib import Path

import msgspec
import pytest
from sqlalchemy import select

from gpuwatch.bootstrap import OpenStores, open_store_read_only, share_open_stores
from gpuwatch.errors import StoreError, StoreNotReady
from gpuwatch.storage.alerts.alert_rows import Silence, SqlSilences
from gpuwatch.storage.alerts.pauses import SqlPauseRepository
from gpuwatch.storage.setup.database import Database
from tests.builders import NOON
from tests.upgraded_store import open_upgraded
from tests.web.served import settings_in


def test_within_the_block_a_store_is_opened_once_and_then_closed(tmp_path: Path) -> None:
    settings = settings_in(tmp_path)
    with share_open_stores(OpenStores()):
        with open_store_read_only(settings) as first:
            pass
        with open_store_read_only(settings) as second:
            assert second is first
            assert not SqlPauseRepository(second).load().by_hand
    with open_store_read_only(settings) as third:
        assert third is not first


def test_a_thread_that_begins_within_the_block_opens_the_store_itself(tmp_path: Path) -> None:
    settings = settings_in(tmp_path)

    def opened() -> Database:
        with open_store_read_only(settings) as store:
            assert not SqlPauseRepository(store).load().by_hand
            return store

    with share_open_stores(OpenStores()), ThreadPoolExecutor(1) as threads:
        assert threads.submit(copy_context().run, opened).result(60) is not opened()


def test_what_could_not_be_opened_is_tried_again(tmp_path: Path) -> None:
    settings = settings_in(tmp_path, has_store=False)
    with share_open_stores(OpenStores()):
        with pytest.raises(StoreNotReady), open_store_read_only(settings):
            pass
        open_upgraded(settings.database_url).close()
        with open_store_read_only(settings) as store:
            assert not SqlPauseRepository(store).load().by_hand


def test_an_error_within_leaves_nothing_shared(tmp_path: Path) -> None:
    settings = settings_in(tmp_path)
    with (
        pytest.raises(StoreError, match="lost"),
        share_open_stores(OpenStores()),
        open_store_read_only(settings) as first,
    ):
        raise StoreError("lost")
    with open_store_read_only(settings) as second:
        assert second is not first


def test_between_requests_a_process_keeps_the_store_and_no_connection(database_url: str, tmp_path: Path) -> None:
    open_upgraded(database_url).close()
    settings = msgspec.structs.replace(settings_in(tmp_path, has_store=False), database_url=database_url)
    opened, used, statements = OpenStores(), [], []
    for _ in range(2):
        with share_open_stores(opened), open_store_read_only(settings) as store, store.read() as connection:
            connection.execute(select(1))
            used.append(store)
            statements.append(len(store.engine._compiled_cache or ()))
    assert used[0] is used[1]
    assert statements[0] == statements[1] > 0, "compiled once"
    assert used[0].engine.pool.checkedin() == 0  # type: ignore[attr-defined]


def test_a_store_stays_connected_until_its_last_request_ends(database_url: str, tmp_path: Path) -> None:
    open_upgraded(database_url).close()
    opened = OpenStores()
    with opened.use(database_url) as first:
        with opened.use(database_url) as second, second.read() as connection:
            connection.execute(select(1))
        assert first.engine.pool.checkedout() == 1  # type: ignore[attr-defined]
    assert first.engine.pool.checkedin() == 0  # type: ignore[attr-defined]


def test_a_file_that_was_replaced_is_seen_by_the_next_request(tmp_path: Path) -> None:
    settings, opened = settings_in(tmp_path), OpenStores()
    with share_open_stores(opened), open_store_read_only(settings):
        pass
    path = Path(settings.database_url.removeprefix("sqlite:///"))
    path.unlink()
    with share_open_stores(opened), pytest.raises(StoreNotReady), open_store_read_only(settings):
        pass
    open_upgraded(settings.database_url).close()
    with share_open_stores(opened), open_store_read_only(settings) as store:
        assert not SqlPauseRepository(store).load().by_hand


def test_all_that_a_request_reads_is_of_one_moment(database: Database) -> None:
    url, silences = database.url, SqlSilences(database)
    opened, later = OpenStores(), NOON + timedelta(hours=1)
    with opened.use(url) as store:
        assert not SqlSilences(store).in_force(NOON)
        with ThreadPoolExecutor(1) as other:
            other.submit(silences.silence, Silence(watch="h100", at=NOON, until=later)).result()
            assert other.submit(SqlSilences(store).in_force, NOON).result(), "another thread's request"
        assert not SqlSilences(store).in_force(NOON)
    with opened.use(url) as store:
        assert SqlSilences(store).in_force(NOON)
