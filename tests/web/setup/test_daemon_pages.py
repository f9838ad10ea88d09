"""Settings and Log: words before keys, no secret, the faults of the file on top, and markup stays text."""

from __future__ import annotations

import logging
from pathlib import Path

from gpuwatch.daemon.log_records import RecentLog
from tests.web.served import PAGE, Served, page, serving_settings, settings_in


def test_settings_are_shown_in_words_and_without_secrets(web: Served) -> None:
    shown = page(web, "/settings")
    assert "Hourly budget" in shown
    assert "$5.00" in shown
    assert "budget.max_usd_hour" in shown
    assert "providers.vastai.base_url" in shown
    assert "a-secret-key" not in shown
    assert "This page only reads" in shown
    assert "notify.telegram.bot_token" not in shown  # it has its default
    assert "notify.telegram.bot_token" in page(web, "/settings?all=yes")


def test_the_search_finds_words_and_keys_among_all_settings(web: Served) -> None:
    for text in ("Token of the bot", "bot_token", "BOT_TOK"):
        shown = page(web, f"/settings?q={text}")
        assert "notify.telegram.bot_token" in shown, text
        assert "budget.max_usd_hour" not in shown, text
    assert "No setting fits." in page(web, "/settings?q=<script>x")


def test_a_fault_of_the_file_stands_on_top_with_its_line(web: Served) -> None:
    file = web.folder / "gpuwatch.toml"
    lines = file.read_text().splitlines()
    number = next(at for at, line in enumerate(lines, 1) if line.startswith("max_usd_hour"))
    file.write_text("\n".join(["max_usd_hour = -1" if at == number else line for at, line in enumerate(lines, 1)]))
    shown = page(web, "/settings")
    assert f"Line {number}: budget.max_usd_hour: " in shown
    assert "so the settings of " in shown
    assert " stay in use." in shown


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
        assert "1 record, no error." in answer.text
        assert "quiet" in beside.client.get("/log?q=QUI", headers=PAGE).text
        logger.error("bad")
        assert "1 error among the newest records." in beside.client.get("/log", headers=PAGE).text
