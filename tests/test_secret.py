"""A secret gives its text to whoever asks for it by name, and to nobody else."""

from __future__ import annotations

import copy
import json
import pickle
from collections.abc import Callable

import msgspec
import pytest

from gpuwatch.secret import Secret

TEXT = "canary-1234"
ENCODERS: list[Callable[[Secret], object]] = [
    msgspec.json.encode,
    msgspec.msgpack.encode,
    msgspec.to_builtins,
    json.dumps,
    pickle.dumps,
    copy.copy,
    copy.deepcopy,
]


def test_only_the_call_gives_its_text() -> None:
    secret = Secret(TEXT, origin="env VAST_API_KEY")
    assert secret.reveal() == TEXT
    for shown in (repr(secret), str(secret), repr({"key": [secret]})):
        assert "canary" not in shown
        assert "VAST_API_KEY" in shown


def test_a_text_that_is_built_with_it_by_mistake_is_an_error() -> None:
    """`Bearer Secret('file')` would be a key that the provider rejects."""
    with pytest.raises(TypeError, match="reveal"):
        f"Bearer {Secret(TEXT)}"


@pytest.mark.parametrize("encode", ENCODERS)
def test_nothing_encodes_it(encode: Callable[[Secret], object]) -> None:
    with pytest.raises(TypeError) as refused:
        encode(Secret(TEXT))
    assert "canary" not in str(refused.value)


def test_two_are_equal_if_their_texts_are_wherever_they_are_written() -> None:
    """A key that moved from the file to a credential is the same account."""
    assert Secret(TEXT, origin="file") == Secret(TEXT, origin="credential vast_api_key")
    assert hash(Secret(TEXT, origin="file")) == hash(Secret(TEXT, origin="credential vast_api_key"))
    assert Secret(TEXT) != Secret(TEXT + "5")
    assert Secret(TEXT) != TEXT


def test_a_list_gives_all_its_texts() -> None:
    assert Secret(("a", "b")).reveal_option() == ("a", "b")


def test_one_without_text_cannot_be_used_unnoticed() -> None:
    with pytest.raises(ValueError, match="holds no text"):
        Secret(origin="env VAST_API_KEY").reveal()
