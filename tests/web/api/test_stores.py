"""The API with other stores than a new SQLite file: PostgreSQL, an older schema, none at all."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from alembic import command

from gpuwatch.storage.setup.database import open_database
from gpuwatch.storage.setup.migrate import alembic_config
from tests.conftest import Postgres
from tests.web.served import PAGE, WATCH, Served, serving_settings, settings_in

LISTS = ("offers", "watches", "launches", "approvals", "alerts", "providers", "costs", "history", "jobs")
OF_THE_STORE = list(LISTS)


@contextmanager
def over(folder: Path, database_url: str) -> Iterator[Served]:
    text = f'[web]\nlisten = "127.0.0.1:0"\n{WATCH}'
    settings = settings_in(folder, text, has_store=False, database_url=database_url)
    with serving_settings(settings, folder) as found:
        yield found


def older(database_url: str, schema: str) -> str:
    """Create it; return its schema according to the database itself."""
    store = open_database(database_url)
    with store.write() as connection:
        command.upgrade(alembic_config(connection), schema)
    store.close()
    return schema_of(database_url)


def schema_of(database_url: str) -> str:
    store = open_database(database_url)
    with store.read() as connection:
        found = str(connection.exec_driver_sql("SELECT version_num FROM alembic_version").scalar_one())
    store.close()
    return found


@pytest.mark.slow
def test_every_list_page_and_metric_is_read_from_postgresql(postgres: Postgres, tmp_path: Path) -> None:
    url = postgres.upgraded()
    with over(tmp_path, url) as web:
        for name in LISTS:
            answer = web.client.get(f"/api/v1/{name}")
            assert (answer.status_code, answer.json()["next"]) == (200, None), answer.text
        for path in ("/", "/market", "/watches", "/launches", "/approvals", "/costs", "/alerts", "/settings"):
            assert web.client.get(path, headers=PAGE).status_code == 200, path
        assert "gpuwatch_store_readable 1.0" in web.client.get("/metrics").text
        token = web.log_in()
        assert web.client.post("/api/v1/pause", headers={"X-CSRF-Token": token}).json()["changed"]
    postgres.drop(url)


@pytest.mark.parametrize("schema", ["0004", "0009"])
def test_with_an_older_schema_every_answer_names_the_command_and_nothing_is_migrated(
    empty_database_url: str, tmp_path: Path, caplog: pytest.LogCaptureFixture, schema: str
) -> None:
    assert older(empty_database_url, schema) == schema
    with over(tmp_path, empty_database_url) as web, caplog.at_level(logging.ERROR):
        for name in OF_THE_STORE:
            answer = web.client.get(f"/api/v1/{name}")
            assert answer.status_code == 503, (name, answer.text)
            assert answer.headers["content-type"] == "application/problem+json"
            assert "gpuwatch store upgrade" in answer.json()["detail"]
        for path in ("/", "/market", "/launches", "/approvals", "/alerts", "/costs", "/gpu/H100"):
            shown = web.client.get(path, headers=PAGE)
            assert shown.status_code == 503, path
            assert "gpuwatch store upgrade" in shown.text, path
        token = web.log_in()
        for path in ("approvals/a/approve", "approvals/a/deny", "launches/a/stop", "pause", "resume"):
            done = web.client.post(f"/api/v1/{path}", headers={"X-CSRF-Token": token})
            assert (done.status_code, done.headers["content-type"]) == (503, "application/problem+json"), done.text
            assert "gpuwatch store upgrade" in done.json()["detail"]
        assert "gpuwatch_store_readable 0.0" in web.client.get("/metrics").text
        assert web.client.get("/healthz").status_code == 200
        assert web.client.get("/settings", headers=PAGE).status_code == 200
    assert schema_of(empty_database_url) == schema
    assert not [record for record in caplog.records if record.exc_info]
