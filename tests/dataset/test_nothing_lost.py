"""No row is removed as a duplicate that the stages cannot judge, or that differs in anything that counts."""

from __future__ import annotations

import json
import random
import shutil
import string
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from gpuwatch.dataset.audit import Audit, AuditModels
from gpuwatch.dataset.onnx_models import TokenCounter, find_model
from gpuwatch.dataset.pipeline import PipelinePlan, compare_all, copy_share, read_share, readings_of
from gpuwatch.dataset.text_rows import FieldSelection, parse_json_line, read_text_row
from tests.checkout import TESTS
from tests.dataset.conftest import Auditor

RECORDED = TESTS / "recorded" / "datasets"
ENGLISH = [
    "The museum opens at nine and closes when the last visitor has left.",
    "Whales breathe air, and their calves drink milk under water.",
    "A compiler translates a program into instructions of the machine.",
    "She sold her bicycle and bought a ticket for the night train.",
    "The recipe needs three eggs, some flour and a pinch of salt.",
    "Prices of copper rose after the strike in the mine.",
    "His grandfather repaired clocks in a small shop near the harbour.",
    "The referee stopped the match because of heavy rain.",
]
WORDS = ["order", "refund", "policy", "ticket", "never", "verify", "customer", "polite", "brief"]
RUSSIAN = [
    "Сегодня хорошая погода, и мы идём гулять в парк.",
    "Поезд опоздал на два часа, все беспокоятся.",
    "Эта книга рассказывает о море и кораблях.",
    "Врач советует пить больше воды и меньше есть жирного.",
    "Библиотека закрыта в пятницу, приходите в субботу.",
]

Jsonl = Callable[[Sequence[dict[str, Any]]], Path]


@pytest.fixture
def jsonl(tmp_path: Path) -> Jsonl:
    """Write rows to a file."""

    def write(rows: Sequence[dict[str, Any]]) -> Path:
        path = tmp_path / "rows.jsonl"
        path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
        return path

    return write


def drawn(alphabet: str, length: int, count: int) -> list[str]:
    draw = random.Random(1)
    return ["".join(draw.choice(alphabet) for _ in range(length)) for _ in range(count)]


def read(audit: Auditor, path: Path, models: AuditModels) -> Audit:
    return audit(path, models=models)


@pytest.mark.parametrize("name", ["th", "km", "dna", "b64", "emoji", "zh", "tool"])
def test_rows_that_all_differ_are_kept(audit: Auditor, minilm: AuditModels, tmp_path: Path, name: str) -> None:
    path = Path(shutil.copy(RECORDED / f"{name}.jsonl", tmp_path))
    found = read(audit, path, minilm)
    assert found.kept == len(path.read_text(encoding="utf-8").splitlines())
    assert found.scanned.rows["unread"].all() == (name != "tool")


@pytest.mark.parametrize(
    "texts",
    [
        RUSSIAN,
        drawn("0123456789abcdef", 64, 10),
        drawn(string.ascii_letters + string.digits, 40, 10),
        [" ".join(drawn("ACGT", 6, 40 * place)[-40:]) for place in range(1, 9)],
        [f"Decode this text for me, please, and tell me what it says: {text}" for text in drawn("ACGT", 200, 10)],
    ],
    ids=["Russian", "hex", "base64", "DNA in words", "a request and DNA"],
)
def test_other_scripts_and_codes_are_kept_and_counted(
    audit: Auditor, minilm: AuditModels, jsonl: Jsonl, texts: list[str]
) -> None:
    found = read(audit, jsonl([{"text": text} for text in texts]), minilm)
    assert (found.kept, int(found.scanned.rows["unread"].sum())) == (len(texts), len(texts))
    assert set(found.clusters.labels.tolist()) == {-1}  # they crowd no cluster, and none may be thinned


def test_equal_texts_that_the_model_cannot_read_are_still_equal(
    audit: Auditor, minilm: AuditModels, jsonl: Jsonl
) -> None:
    texts = [json.loads(line)["text"] for line in (RECORDED / "th.jsonl").read_text(encoding="utf-8").splitlines()]
    found = read(audit, jsonl([{"text": text} for text in [*texts, *texts, *ENGLISH]]), minilm)
    assert found.kept == len(texts) + len(ENGLISH)
    assert int(found.scanned.rows["unread"].sum()) == 2 * len(texts)


def test_what_the_model_can_read_is_judged(audit: Auditor, minilm: AuditModels, jsonl: Jsonl) -> None:
    near = [text.replace("The ", "The  ").removesuffix(".") for text in ENGLISH[:4]]
    found = read(audit, jsonl([{"text": text} for text in [*ENGLISH, *near]]), minilm)
    assert found.kept == len(ENGLISH)
    assert not found.scanned.rows["unread"].any()


def test_tokens_that_are_unknown_are_estimated_by_their_characters() -> None:
    counter = TokenCounter(find_model(None).tokenizer, estimate=True)
    dna, english = drawn("ACGT", 400, 1)[0], "The museum opens at nine."
    assert counter.counts([dna, english]) == [200, 6]
    assert TokenCounter(find_model(None).tokenizer, estimate=False).counts([dna]) == [1]


def test_a_prompt_that_all_rows_share_does_not_count(audit: Auditor, minilm: AuditModels, jsonl: Jsonl) -> None:
    draw = random.Random(7)
    prompt = " ".join(draw.choices(WORDS, k=450))
    question = [{"role": "user", "content": text} for text in ENGLISH]
    system = {"role": "system", "content": prompt}
    chats = [{"messages": [system, one, {"role": "assistant", "content": "Certainly."}]} for one in question]
    assert read(audit, jsonl(chats), minilm).kept == len(ENGLISH)
    rows = [{"instruction": prompt, "input": text, "output": text[::-1]} for text in ENGLISH]
    assert read(audit, jsonl(rows), minilm).kept == len(ENGLISH)
    template = [{"text": f"<|system|>\n{prompt}\n<|user|>\n{text}\n<|assistant|>"} for text in ENGLISH]
    assert read(audit, jsonl(template), minilm).kept == len(ENGLISH)
    again = [*chats, {"messages": [system, {"role": "user", "content": ENGLISH[0] + " "}, *chats[0]["messages"][2:]]}]
    assert read(audit, jsonl(again), minilm).kept == len(ENGLISH)  # without the prompt, it is nearly the same


def test_several_prompts_each_of_a_part_of_the_rows_do_not_count_either(
    audit: Auditor, minilm: AuditModels, jsonl: Jsonl
) -> None:
    draw = random.Random(8)
    prompts = [" ".join(draw.choices(WORDS, k=450)) for _ in range(3)]
    rows = [{"prompt": prompt, "completion": text} for prompt in prompts for text in ENGLISH]
    assert read(audit, jsonl(rows), minilm).kept == len(rows)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"function_call": {"name": "f", "arguments": "1"}}, {"function_call": {"name": "f", "arguments": "2"}}),
        ({"tool_calls": [{"function": {"arg": {"n": 1}}}]}, {"tool_calls": [{"function": {"arg": {"n": 2}}}]}),
        ({"content": [{"type": "image_url", "image_url": {"url": "https://a/1.png"}}]},
         {"content": [{"type": "image_url", "image_url": {"url": "https://a/2.png"}}]}),
        ({"weight": 0}, {"weight": 1}),
        ({"score": float("nan")}, {"score": None}),
        ({"name": "Ann"}, {"name": "Bob"}),
    ],
)  # fmt: skip
def test_messages_that_differ_in_anything_are_neither_equal_nor_nearly(
    audit: Auditor, minilm: AuditModels, jsonl: Jsonl, one: dict[str, Any], other: dict[str, Any]
) -> None:
    rows = [
        {"messages": [{"role": "user", "content": ENGLISH[0]}, {"role": "assistant", **more}]} for more in (one, other)
    ]
    others = [{"messages": [{"content": text}]} for text in ENGLISH[1:]]
    found = read(audit, jsonl([*rows, rows[0], *others]), minilm)
    assert found.kept == len(ENGLISH) + 1


def test_equality_covers_every_value_and_no_order_of_keys() -> None:
    reading = FieldSelection(fields=("messages",), guessed=False)

    def digest(messages: str) -> bytes:
        return read_text_row(parse_json_line(b'{"messages": ' + messages.encode() + b"}"), reading).digest

    one = '[{"role": "user", "content": "a"}]'
    assert digest(one) == digest('[{"content": "a", "role": "user"}]')
    others = ('[{"role": "tool", "content": "a"}]', '[{"content": "a"}]', '[{"role": "user", "content": "a "}]')
    numbers = ('[{"content": "a", "n": 1}]', '[{"content": "a", "n": 1.0}]', '[{"content": "a", "n": true}]')
    odd = ('[{"content": "a", "n": NaN}]', '[{"content": "a", "n": null}]', '[{"content": "a", "n": "\\ud800"}]')
    assert len({digest(messages) for messages in (one, *others, *numbers, *odd)}) == 10


def test_files_of_different_shape_are_judged_each_by_its_own(tmp_path: Path) -> None:
    source = tmp_path / "parts"
    source.mkdir()
    shutil.copy(RECORDED / "zh.jsonl", source / "a.jsonl")
    shutil.copy(RECORDED / "tool.jsonl", source / "b.jsonl")
    (source / "c.jsonl").write_text('{"n": 1}\n' + (RECORDED / "zh.jsonl").read_text(encoding="utf-8").splitlines()[0])
    (source / "d.jsonl").write_text("broken\n")
    readings = readings_of(source, ())
    plan = PipelinePlan(
        source=source, out=tmp_path / "out", readings=readings, wording=True, executor="local", tasks=1, time="",
        partition="",
    )  # fmt: skip
    for step in (read_share, compare_all, copy_share):
        step(None, plan=plan)
    summary = json.loads((plan.out / "summary.json").read_bytes())
    assert (summary["rows"], summary["exact_duplicates"], summary["kept_rows"]) == (41, 1, 40)
    assert summary["skipped"] == {"no text in text": 1, "not JSON": 1}  # every line is judged, or counted by reason
