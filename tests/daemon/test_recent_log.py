"""The newest log records in memory: bounded, redacted, filtered."""

from __future__ import annotations

import logging

from gpuwatch.daemon.log_records import RecentLog


def kept(*messages: str, kept: int = 3) -> RecentLog:
    found = RecentLog(lambda text: text.replace("hunter2", "***"), kept)
    logger = logging.Logger("test.recent")  # not a child of the root logger: no other handler gets its records
    logger.addHandler(found)
    for message in messages:
        level, _, text = message.partition(" ")
        logger.log(logging.getLevelName(level), text)
    return found


def test_the_newest_come_first_and_the_oldest_go() -> None:
    found = kept("INFO one", "INFO two", "INFO three", "INFO four")
    assert [record.message for record in found.newest()] == ["four", "three", "two"]


def test_by_level_and_by_text() -> None:
    found = kept("INFO watch night: no_offer", "ERROR task follow fails", "WARNING watch day: paused")
    assert [record.message for record in found.newest(logging.WARNING)] == [
        "watch day: paused", "task follow fails",
    ]  # fmt: skip
    assert [record.message for record in found.newest(containing="WATCH")] == [
        "watch day: paused", "watch night: no_offer",
    ]  # fmt: skip


def test_no_secret_and_no_control_character_is_kept() -> None:
    (record,) = kept("INFO the key hunter2 \x1b[31m").newest()
    assert record.message == "the key *** \\x1b[31m"
