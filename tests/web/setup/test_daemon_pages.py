"""The settings and the log of the daemon: no secret is shown, and markup stays text."""

from __future__ import annotations

import logging
from pathlib import Path

from gpuwatch.daemon.log_records import RecentLog
from tests.web.served import PAGE, Served, page, serving_settings, settings_in


def test_settings_are_shown_without_secrets(web: Served) -> None:
    shown = page(web, "/settings")
    assert "providers.vastai.base_url" in shown
    assert "a-secret-key" not in shown
    assert "notify.telegram.bot_token" not in shown
    assert "notify.telegram.bot_token" in page(web, "/settings?q=bot_token")


def test_the_log_is_that_of_the_daemon_in_this_process(tmp_path: Path, web: Served) -> None:
    assert "journalctl -u gpuwatch" in page(web, "/log")
    kept = RecentLog(str)
    logger = logging.Logger("test.page")
    logger.addHandler(kept)
    logger.warning("watch <script>alert(1)</script>")
    logger.info("quiet")
    (tmp_path / "beside").mkdir()
    settings = settings_in(tmp_path / "beside", '[web]\nlisten = "127.0.0.1:0"\n')
    with serving_settings(settings, tmp_path / "beside", kept) as beside:
        answer = beside.client.get("/log?level=warning", headers=PAGE)
        assert "&lt;script&gt;" in answer.text
        assert "<script>alert" not in answer.text
        assert "quiet" not in answer.text
        assert "quiet" in beside.client.get("/log?q=QUI", headers=PAGE).text
