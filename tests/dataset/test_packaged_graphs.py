"""The graphs in the package are those that tests/dataset/bert_graph.py builds, as the other tests assume."""

from tests.dataset.bert_graph import PACKAGED, PACKAGED_INT8, packaged_graph, packaged_int8_graph


def test_of_32_bits() -> None:
    assert packaged_graph() == PACKAGED.read_bytes()


def test_of_8_bits() -> None:
    assert packaged_int8_graph() == PACKAGED_INT8.read_bytes()
