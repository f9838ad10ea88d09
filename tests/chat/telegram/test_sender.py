"""Messages, edits, pictures and answers of the chat: as documented, within limits, and after the right pauses."""

from __future__ import annotations

import json
import threading
from email import message_from_bytes

import httpx
import pytest
import respx

from gpuwatch.chat.replies import ChatReply, simple_reply
from gpuwatch.chat.telegram.sender import MessageSender
from gpuwatch.chat.telegram.updates import ChatMessage, ChatPlace
from gpuwatch.notifiers.telegram.bot_api import BotApi
from gpuwatch.ports.alerts import MessageButton
from gpuwatch.providers.toolkit.http.client import PooledHttpClient
from tests.sent_requests import sent
from tests.telegram_double import BAD_GATEWAY, BLOCKED, TOKEN, Fault, too_many
from tests.telegram_routes import API, NO_ANSWER, NOT_SENT, PATH, bodies, message, ok, refused, shown

pytestmark = pytest.mark.respx(base_url=API)
CHAT = "5001"
BUTTONS = [[MessageButton("Stop", "s:1"), MessageButton("Cost", "c:1")]]
KEYBOARD = {"inline_keyboard": [[{"text": "Stop", "callback_data": "s:1"}, {"text": "Cost", "callback_data": "c:1"}]]}
NO_PREVIEW = {"is_disabled": True}
NOT_MODIFIED = Fault(400, "Bad Request: message is not modified: specified new message content and reply markup are"
                          " exactly the same as a current content and reply markup of the message")  # fmt: skip


class Pauses:
    """A clock that advances only while the sender waits."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.waits: list[float] = []

    def sleep(self, seconds: float) -> None:
        self.waits.append(seconds)
        self.now_s += seconds


@pytest.fixture
def pauses() -> Pauses:
    return Pauses()


@pytest.fixture
def stopping() -> threading.Event:
    return threading.Event()


@pytest.fixture
def sender(http: PooledHttpClient, pauses: Pauses, stopping: threading.Event) -> MessageSender:
    return MessageSender(BotApi(TOKEN, http), stopping, sleep=pauses.sleep, monotonic=lambda: pauses.now_s)


@pytest.fixture
def posted(respx_mock: respx.MockRouter) -> respx.Route:
    """The route of `sendMessage`: accepts every message, unless a test lets it answer otherwise."""
    return respx_mock.post("/sendMessage").mock(return_value=message())


# --- requests ---------------------------------------------------------------------------------------------------------
def test_a_message_is_one_documented_request(sender: MessageSender, posted: respx.Route) -> None:
    sender.send(CHAT, simple_reply("2 launches & 1 job", BUTTONS))
    body = {
        "chat_id": CHAT,
        "text": "2 launches &amp; 1 job",
        "parse_mode": "HTML",
        "link_preview_options": NO_PREVIEW,
        "reply_markup": KEYBOARD,
    }
    assert sent(posted.calls) == [("POST", f"{PATH}/sendMessage", body)]


@pytest.mark.parametrize("answer", [ok(), refused(Fault(400, "Bad Request: query is too old")), refused(BAD_GATEWAY),
                                    *NO_ANSWER, *NOT_SENT])  # fmt: skip
def test_a_press_is_answered_by_one_request_whatever_comes_back(
    sender: MessageSender, respx_mock: respx.MockRouter, answer: httpx.Response | type[httpx.TransportError]
) -> None:
    route = respx_mock.post("/answerCallbackQuery").mock(side_effect=[answer])
    sender.answer("press-1", "Rented.")
    body = {"callback_query_id": "press-1", "text": "Rented.", "show_alert": False}
    assert sent(route.calls) == [("POST", f"{PATH}/answerCallbackQuery", body)]


def test_a_long_notice_is_cut_and_shown_as_a_window(sender: MessageSender, respx_mock: respx.MockRouter) -> None:
    route = respx_mock.post("/answerCallbackQuery").mock(return_value=ok())
    sender.answer("press-1", f"{TOKEN} " + "x" * 300)
    ((_, _, body),) = sent(route.calls)
    assert (len(body["text"]), body["show_alert"]) == (200, True)
    assert TOKEN not in body["text"]


def test_an_edit_keeps_the_text_and_its_formatting(sender: MessageSender, respx_mock: respx.MockRouter) -> None:
    """Formatting beyond the kept text, and of a kind that Telegram finds itself, is left out."""
    bold = {"type": "bold", "offset": 0, "length": 2}
    kept = ({"type": "mention", "offset": 3, "length": 4}, bold, {"type": "bold", "offset": 12, "length": 3})
    edited = ChatMessage(message_id=77, chat=ChatPlace(5001), text="an @one\n\n▸ earlier", entities=kept)
    route = respx_mock.post("/editMessageText").mock(return_value=message(77))
    sender.edit(edited, simple_reply("Stopped."), BUTTONS)
    body = {
        "chat_id": 5001,
        "message_id": 77,
        "text": "an @one\n\n▸ Stopped.",
        "entities": [bold],
        "reply_markup": KEYBOARD,
        "link_preview_options": NO_PREVIEW,
    }
    assert sent(route.calls) == [("POST", f"{PATH}/editMessageText", body)]


def test_an_edit_that_changes_nothing_is_done(
    sender: MessageSender, respx_mock: respx.MockRouter, caplog: pytest.LogCaptureFixture
) -> None:
    edited = respx_mock.post("/editMessageText").mock(return_value=refused(NOT_MODIFIED))
    sender.edit(ChatMessage(message_id=77, chat=ChatPlace(5001), text="done"), simple_reply("done"), [])
    assert (edited.call_count, caplog.records) == (1, [])


def test_what_cannot_be_edited_is_sent_anew(
    sender: MessageSender, respx_mock: respx.MockRouter, posted: respx.Route
) -> None:
    fault = refused(Fault(400, "Bad Request: message to edit not found"))
    edited = respx_mock.post("/editMessageText").mock(return_value=fault)
    sender.edit(ChatMessage(message_id=77, chat=ChatPlace(5001), text="gone"), simple_reply("done"), [])
    assert edited.call_count == 1
    assert [seen.text for seen in shown(posted)] == ["done"]


def test_a_message_without_text_is_answered_by_a_new_one(sender: MessageSender, posted: respx.Route) -> None:
    sender.edit(ChatMessage(message_id=77, chat=ChatPlace(5001)), simple_reply("done"), [])
    assert [seen.text for seen in shown(posted)] == ["done"]


def test_a_picture_is_one_upload_with_its_caption(sender: MessageSender, respx_mock: respx.MockRouter) -> None:
    photo = respx_mock.post("/sendPhoto").mock(return_value=message())
    sender.send(CHAT, ChatReply(lines=simple_reply("Größe <b>").lines, rows=BUTTONS, picture=bytes(range(256))))
    (request,) = (call.request for call in photo.calls)
    kind = request.headers["content-type"].encode()
    parts = message_from_bytes(b"content-type: " + kind + b"\r\n\r\n" + request.content).get_payload()
    fields = {part.get_param("name", header="content-disposition"): part.get_payload(decode=True) for part in parts}
    assert fields.pop("photo") == bytes(range(256))
    assert json.loads(fields.pop("reply_markup")) == KEYBOARD
    assert fields == {"chat_id": CHAT.encode(), "caption": "Größe <b>".encode()}
    assert (parts[-1].get_content_type(), parts[-1].get_filename()) == ("image/png", "prices.png")


def test_a_picture_that_telegram_rejects_is_sent_as_text(
    sender: MessageSender, respx_mock: respx.MockRouter, posted: respx.Route
) -> None:
    respx_mock.post("/sendPhoto").mock(return_value=refused(Fault(400, "Bad Request: IMAGE_PROCESS_FAILED")))
    sender.send(CHAT, ChatReply(lines=simple_reply("Größe <b>").lines, rows=BUTTONS, picture=b"not a picture"))
    assert [(seen.text, seen.labels) for seen in shown(posted)] == [("Größe <b>", ["Stop", "Cost"])]


def test_hostile_text_and_secrets_stay_out_of_messages(sender: MessageSender, posted: respx.Route) -> None:
    sender.send(CHAT, simple_reply(f"<b>host</b> & @someone /stop {TOKEN} \u202eevil\n" + "x" * 5000))
    (seen,) = shown(posted)
    assert "<b>host</b> & @someone" in seen.text
    assert TOKEN not in seen.text
    assert "\u202e" not in seen.text
    assert not [entity for entity in seen.entities if entity.kind in {"mention", "bot_command", "b"}]


# --- retries ----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("answer", [refused(BAD_GATEWAY), refused(Fault(200, raw=b"<html>log in</html>")), *NO_ANSWER,
                                    *NOT_SENT])  # fmt: skip
def test_a_message_without_telegrams_answer_is_sent_again_after_a_pause(
    sender: MessageSender, posted: respx.Route, pauses: Pauses, answer: httpx.Response | type[httpx.TransportError]
) -> None:
    posted.side_effect = [answer, message()]
    sender.send(CHAT, simple_reply("hello"))
    first, second = bodies(posted)
    assert first == second
    assert pauses.waits == [1.0]


def test_after_three_attempts_it_is_given_up_and_logged_without_the_token(
    sender: MessageSender, posted: respx.Route, pauses: Pauses, caplog: pytest.LogCaptureFixture
) -> None:
    posted.side_effect = [httpx.ReadTimeout, refused(BAD_GATEWAY), refused(BAD_GATEWAY)]
    sender.send(CHAT, simple_reply("hello"))
    assert (posted.call_count, pauses.waits) == (3, [1.0, 3.0])
    assert [record.getMessage() for record in caplog.records] == ["sendMessage failed: telegram: 502 Bad Gateway"]


@pytest.mark.parametrize("fault", [BLOCKED, Fault(400, "Bad Request: chat not found"), Fault(401, "Unauthorized")])
def test_a_rejection_is_final(sender: MessageSender, posted: respx.Route, pauses: Pauses, fault: Fault) -> None:
    posted.return_value = refused(fault)
    sender.send(CHAT, simple_reply("hello"))
    assert (posted.call_count, pauses.waits) == (1, [])


@pytest.mark.parametrize(
    ("fault", "wait_s"),
    [
        (too_many(7), 7.0),
        (too_many(3600), 60.0),
        (Fault(429, raw=b"<html>", headers={"Retry-After": "12"}), 12.0),
        (Fault(429, raw=b"<html>"), 3.0),
    ],
)
def test_a_rate_limit_is_waited_for(
    sender: MessageSender, posted: respx.Route, pauses: Pauses, fault: Fault, wait_s: float
) -> None:
    posted.side_effect = [refused(fault), message()]
    sender.send(CHAT, simple_reply("hello"))
    assert (posted.call_count, sum(pauses.waits)) == (2, wait_s)


def test_the_rate_limit_of_one_message_delays_the_next(
    sender: MessageSender, posted: respx.Route, pauses: Pauses
) -> None:
    posted.side_effect = [*[refused(too_many(20))] * 3, message()]
    sender.send(CHAT, simple_reply("given up"))
    assert (posted.call_count, pauses.now_s) == (3, 40.0)
    sender.send(CHAT, simple_reply("the next"))
    assert (posted.call_count, pauses.now_s) == (4, 60.0)


def test_when_gpuwatch_stops_nothing_is_sent_again(
    sender: MessageSender, posted: respx.Route, pauses: Pauses, stopping: threading.Event
) -> None:
    stopping.set()
    posted.return_value = refused(BAD_GATEWAY)
    sender.send(CHAT, simple_reply("hello"))
    assert (posted.call_count, pauses.waits) == (1, [])
