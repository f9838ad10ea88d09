"""The meaning of error responses, by status and text."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.errors import (
    KeyRejected,
    OrderRateLimited,
    OrderRefused,
    OutcomeUnknown,
    PayloadChanged,
    ProviderDown,
    ProviderMoved,
    RateLimited,
    RefusalKind,
)
from gpuwatch.ports.http import HttpReply
from gpuwatch.providers.toolkit.error_mapping import ordering_error, read_error_body, reading_error, retry_after_s
from gpuwatch.redaction import register_secret
from gpuwatch.testing.suite import case

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)


def reply(status: int, body: object = b"{}", **headers: str) -> HttpReply:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return HttpReply(status, named, body if isinstance(body, bytes) else json.dumps(body).encode())


def test_the_code_and_the_sentence_are_found() -> None:
    cases: list[Any] = [
        ({"error": {"code": "no_stock", "message": "No stock."}}, "no_stock", "No stock."),
        ({"error": "no such thing"}, "", "no such thing"),
        ({"message": "Slow down", "code": 42}, "42", "Slow down"),
        ({"detail": [{"msg": "field required", "loc": ["a"]}]}, "", "field required"),
        ({"errors": [{"message": "first"}, {"message": "second"}]}, "", "first second"),
        ({"title": "Bad", "detail": "Because"}, "", "Because Bad"),
        ([{"message": "in a list"}], "", "in a list"),
        ({"errors": [{"message": "m", "extensions": {"code": "DEEP"}}]}, "DEEP", "m"),
        (b"plain words", "", "plain words"),
        (b"<html>gateway</html>", "", "an answer that is not JSON"),
        (b"", "", "an answer that is not JSON"),
        ({"a": 1}, "", "an answer without a message"),
    ]
    for body, code, sentence in cases:
        with case((body, code, sentence)):
            reported = read_error_body(reply(400, body))
            assert (reported.code, reported.sentence) == (code, sentence)
            assert reported.summary == f"400 {sentence}"


def test_what_is_reported_is_one_line_cut_and_without_secrets() -> None:
    reported = read_error_body(reply(400, {"error": "wrong\r\nkey: Bearer abcdef123456 " + "x" * 500}))
    assert "abcdef123456" not in reported.summary
    assert "\n" not in reported.summary
    assert len(reported.summary) < 200


def test_words_are_looked_for_in_small_letters() -> None:
    reported = read_error_body(reply(400, {"error": {"code": "OUT_OF_STOCK", "message": "Sold Out"}}))
    assert reported.has("nothing", "sold out")
    assert reported.has("out_of_stock")
    assert not reported.has("credit")


@given(st.binary(max_size=60) | st.recursive(
    st.none() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(st.sampled_from(["error", "errors", "detail", "message", "code", "title"]), inner, max_size=4),
    max_leaves=12,
).map(lambda value: json.dumps(value).encode()))  # fmt: skip
def test_no_answer_breaks_the_reader(body: bytes) -> None:
    reported = read_error_body(HttpReply(400, {}, body))
    assert reported.summary.startswith("400")
    assert reported.summary.isprintable()


def test_each_status_of_a_question_has_its_error() -> None:
    cases: list[Any] = [
        (401, KeyRejected),
        (403, KeyRejected),
        (429, RateLimited),
        (408, ProviderDown),
        (500, ProviderDown),
        (503, ProviderDown),
        (302, ProviderMoved),
        (400, PayloadChanged),
        (404, PayloadChanged),
    ]
    for status, error in cases:
        with case((status, error)):
            found = reading_error("acme", read_error_body(reply(status)), reply(status), NOW)
            assert type(found) is error
            assert str(found).startswith(f"acme: {status}")


def test_each_status_of_an_order_has_its_error() -> None:
    cases: list[Any] = [
        (400, OrderRefused, RefusalKind.BAD_ORDER),
        (401, OrderRefused, RefusalKind.KEY),
        (402, OrderRefused, RefusalKind.NO_CREDIT),
        (403, OrderRefused, RefusalKind.KEY),
        (404, OrderRefused, RefusalKind.OTHER),
        (422, OrderRefused, RefusalKind.BAD_ORDER),
        (429, OrderRateLimited, None),
        (301, OrderRefused, RefusalKind.OTHER),
        (302, OutcomeUnknown, None),
        (303, OutcomeUnknown, None),
        (408, OutcomeUnknown, None),
        (500, OutcomeUnknown, None),
        (503, OutcomeUnknown, None),
    ]
    for status, error, kind in cases:
        with case((status, error, kind)):
            found = ordering_error("acme", read_error_body(reply(status)), reply(status), NOW)
            assert type(found) is error
            assert getattr(found, "kind", None) is kind


def test_the_wait_is_held_between_a_second_and_an_hour() -> None:
    cases: list[Any] = [
        ("7", 7.0),
        ("0", 1.0),
        ("-5", 1.0),
        ("99999", 3600.0),
        ("Sat, 21 Nov 2026 12:00:30 GMT", 30.0),
        ("Sat, 21 Nov 2026 12:00:30", 30.0),
        ("Sat, 21 Nov 2020 12:00:00 GMT", 1.0),
        ("soon", None),
        ("nan", None),
        ("inf", None),  # not a usable number of seconds
        ("", None),
    ]
    for header, seconds in cases:
        with case((header, seconds)):
            assert retry_after_s(reply(429, retry_after=header), NOW) == seconds


def test_without_the_header_no_wait_is_reported() -> None:
    assert retry_after_s(reply(429), NOW) is None


def test_half_a_key_is_shown_of_no_answer_wherever_it_is_cut() -> None:
    for before in range(0, 420, 7):
        with case(before):
            key = "Kq7-zW3.mB9_pX5+tR1vN8sD4"
            register_secret(key)
            for body in (f"{'y' * before} {key} and more", {"error": f"{'y' * before} {key}"}):
                reported = read_error_body(reply(401, body.encode() if isinstance(body, str) else body)).summary
                assert key[:6] not in reported, reported
