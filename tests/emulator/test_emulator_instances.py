"""The life of an instance, its list, its cost and its books."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.checkout import TESTS

RECORDED = TESTS / "recorded" / "vastai"
STATES = ("actual_status", "intended_status", "cur_state", "next_state")


def states(row: dict[str, Any]) -> list[Any]:
    return [row[name] for name in STATES]


def put(one: Any, contract: int, **body: Any) -> Any:
    return one.http.put(f"/api/v0/instances/{contract}/", json=body)


def delete(one: Any, contract: int) -> Any:
    return one.http.request("DELETE", f"/api/v0/instances/{contract}/", json={})


def running(one: Any, **fields: Any) -> int:
    contract: int = one.rented(one.market.publish(**fields))
    one.clock.advance(75)
    return contract


def test_instances_have_the_recorded_keys(opened: Any) -> None:
    recorded = json.loads((RECORDED / "instances_v1_states_reconstructed.json").read_text())
    one = opened()
    running(one)
    page = one.list()
    assert set(page) == set(recorded)
    shown = {"inet_up", "inet_down", "cuda_max_good", "driver_version"}  # by live rows, the reconstruction lacks them
    assert set(page["instances"][0]) == set(recorded["instances"][0]) | shown


def test_a_start_goes_from_null_over_created_and_loading_to_running(opened: Any) -> None:
    one = opened()
    contract = one.rented(one.market.publish())
    seen = [(0.0, None, None, None)]
    for second in (0, 2, 4, 6, 30, 60, 75):
        one.clock.advance(second - seen[-1][0])
        row = one.show(contract)
        seen.append((second, row["actual_status"], row["ssh_host"], row["gpu_util"]))
    assert [entry[1] for entry in seen[1:]] == [None, "created", "created", "loading", "loading", "running", "running"]
    assert seen[2][2] is None
    assert seen[3][2] == "ssh5.vast.ai"
    assert [entry[3] for entry in seen[-2:]] == [None, 97.0]
    assert row["ports"]["22/tcp"][0]["HostPort"].isdigit()


def test_progress_is_reported_in_dockers_words_while_loading(opened: Any) -> None:
    one = opened()
    contract = one.rented(one.market.publish())
    said = set()
    for _ in range(60):
        one.clock.advance(1)
        said.add(one.show(contract)["status_msg"])
    assert {"0d30c18b26f8: Downloading", "0d30c18b26f8: Extracting"} <= said


@pytest.mark.parametrize(
    ("fate", "status", "words"),
    [
        ("dead_pull", "loading", "error pulling image"),
        ("dead_oci", "created", "OCI runtime create failed"),
        ("retrying", "loading", "Retrying"),
        ("stuck", "loading", "latest: Pulling"),
    ],
)
def test_a_doomed_start_stays_where_it_is(opened: Any, fate: str, status: str, words: str) -> None:
    one = opened()
    one.market.faults.add("create", fate)
    contract = one.rented(one.market.publish())
    one.clock.advance(3600)
    row = one.show(contract)
    assert row["actual_status"] == status
    assert words in row["status_msg"]
    assert one.market.ledger.bill_microusd() == 0


def test_a_slow_start_takes_longer_and_arrives(opened: Any) -> None:
    one = opened()
    one.market.faults.add("create", "slow_start", after_s=600)
    contract = one.rented(one.market.publish())
    one.clock.advance(600)
    assert one.show(contract)["actual_status"] == "loading"
    one.clock.advance(75)
    assert one.show(contract)["actual_status"] == "running"


@pytest.mark.parametrize(("fate", "status"), [("exits", "exited"), ("offline", "offline"), ("unknown", "unknown")])
def test_a_running_instance_can_end_by_itself_and_its_gpu_is_no_longer_billed(
    opened: Any, fate: str, status: str
) -> None:
    one = opened()
    one.market.faults.add("create", fate, after_s=3600)
    contract = one.rented(one.market.publish(usd_hour=2.0))
    one.clock.advance(60 + 3600 + 7200)
    assert one.show(contract)["actual_status"] == status
    assert one.market.ledger.bill_microusd(contract) == 2_000_000


def test_a_gone_instance_is_null_and_a_second_destroy_404(opened: Any) -> None:
    one = opened()
    contract = running(one)
    assert delete(one, contract).json() == {"success": True}
    assert one.http.get(f"/api/v0/instances/{contract}/").json() == {"instances": None}
    again = delete(one, contract)
    expected = {"success": False, "error": "no_such_instance", "msg": f"Instance {contract} not found."}
    assert (again.status_code, again.json()) == (404, expected)


def test_a_stop_keeps_the_disk_billed_and_frees_the_gpus(opened: Any) -> None:
    one = opened()
    contract = running(one, usd_hour=3.6, storage_cost=0.72)
    assert put(one, contract, state="stopped").json() == {"success": True}
    assert states(one.show(contract)) == ["exited", "stopped", "stopped", "stopped"]
    assert len(one.search()) == 1
    before = one.market.ledger.bill_microusd(contract)
    one.clock.advance(3600)
    assert one.market.ledger.bill_microusd(contract) - before == 10_000  # 10 GB at $0.72 a month of 720 h


def test_a_start_whose_gpus_are_taken_is_queued_and_begins_when_they_are_free(opened: Any) -> None:
    one = opened()
    contract = running(one, machine_id=9)
    put(one, contract, state="stopped")
    one.market.occupy(contract)
    answer = put(one, contract, state="running")
    assert (answer.status_code, answer.json()["success"]) == (200, False)
    assert answer.json()["error"] == "resources_unavailable"
    one.market.give_back(9)
    one.clock.advance(30)
    assert one.show(contract)["actual_status"] == "running"


@pytest.mark.parametrize(
    ("disguise", "expected"),
    [
        ("outbid", ["stopped", "running", "stopped", "running"]),
        ("outbid_as_stop", ["exited", "stopped", "stopped", "stopped"]),
    ],
)
def test_a_lost_bid_shows_in_either_disguise_and_resumes_by_itself(
    opened: Any, disguise: str, expected: list[str]
) -> None:
    one = opened()
    contract = one.rented(one.market.publish(usd_hour=2.0, min_bid=1.0), price=1.0)
    one.clock.advance(75)
    one.market.befall(contract, disguise)
    assert states(one.show(contract)) == expected
    one.market.befall(contract, "resume")
    one.clock.advance(30)
    assert states(one.show(contract)) == ["running"] * 4


def test_a_rival_can_leave_after_a_while(opened: Any) -> None:
    one = opened()
    contract = one.rented(one.market.publish(min_bid=1.0), price=1.0)
    one.clock.advance(75)
    one.market.befall(contract, "outbid", resume_after_s=600)
    one.clock.advance(599)
    assert one.show(contract)["actual_status"] == "stopped"
    one.clock.advance(30)
    assert one.show(contract)["actual_status"] == "running"


def test_a_higher_bid_wins_the_gpus_back(opened: Any) -> None:
    one = opened()
    contract = one.rented(one.market.publish(min_bid=1.0), price=1.0)
    one.clock.advance(75)
    one.market.befall(contract, "outbid", rival_usd_hour=1.5)
    for price, status in ((1.2, "stopped"), (1.6, "running")):
        one.http.put(f"/api/v0/instances/bid_price/{contract}/", json={"client_id": "me", "price": price})
        one.clock.advance(30)
        assert one.show(contract)["actual_status"] == status


def test_bids_of_rentals_and_tiny_bids_are_refused_as_recorded(opened: Any) -> None:
    one = opened()
    rental, bid = running(one), one.rented(one.market.publish(min_bid=1.0), price=1.0)
    url = "/api/v0/instances/bid_price/{}/"
    recorded = [
        entry for entry in json.loads((RECORDED / "errors.json").read_text()) if "bid_price" in entry["endpoint"]
    ]
    wanted = [entry["body"] for entry in recorded if entry["endpoint"].startswith("PUT instances/bid_price")]
    answers = [
        one.http.put(url.format(rental), json={"price": 2.0}),
        one.http.put(url.format(bid), json={"price": 0.0001}),
    ]
    assert [answer.json() for answer in answers] == wanted


def test_credit_runs_down_to_zero_and_then_everything_stops(opened: Any) -> None:
    one = opened(credit_usd=2.0)
    contract = running(one, usd_hour=1.0)
    one.clock.advance(10 * 3600)
    assert states(one.show(contract)) == ["exited", "stopped", "stopped", "stopped"]
    assert one.market.ledger.bill_microusd() == pytest.approx(2_000_000, abs=1)
    assert one.http.get("/api/v0/users/current/").json()["credit"] == pytest.approx(0.0, abs=1e-6)
    answer = put(one, contract, state="running")
    assert (answer.status_code, answer.json()["error"]) == (400, "missing_billing")


def test_the_gpu_is_billed_from_running_and_never_while_loading(opened: Any) -> None:
    one = opened()
    contract = one.rented(one.market.publish(usd_hour=3.6))
    one.clock.advance(60)
    assert one.market.ledger.bill_microusd(contract) == 0
    one.clock.advance(1)
    assert one.market.ledger.bill_microusd(contract) == 1_000


def test_pages_hold_at_most_25_and_tokens_lead_to_the_rest(opened: Any) -> None:
    one = opened()
    made = [one.rented(one.market.publish()) for _ in range(60)]
    seen, token, sizes = [], "", []
    while token is not None:
        page = one.list(limit="100", **({"after_token": token} if token else {}))
        seen += [row["id"] for row in page["instances"]]
        sizes.append(page["instances_found"])
        token = page["next_token"]
    assert (seen, sizes, page["total_instances"]) == (made, [25, 25, 10], 60)
    assert one.list(limit="0")["instances_found"] == 5


def test_a_destroy_between_two_pages_loses_no_row(opened: Any) -> None:
    one = opened()
    made = [one.rented(one.market.publish()) for _ in range(30)]
    first = one.list()
    delete(one, made[24])
    rest = one.list(after_token=first["next_token"])
    assert [row["id"] for row in rest["instances"]] == made[25:]


def test_the_list_filters_by_label_and_counts_labels_over_all_pages(opened: Any) -> None:
    one = opened()
    for label in ("a", "a", "b", None):
        one.rented(one.market.publish(), label=label)
    assert one.list(limit="1")["label_counts"] == {"a": 2, "b": 1, "": 1}
    filtered = one.list(select_filters=json.dumps({"label": {"eq": "a"}}))
    assert {row["label"] for row in filtered["instances"]} == {"a"}
    assert filtered["total_instances"] == 2
    descending = one.list(order_by=json.dumps([{"col": "id", "dir": "desc"}]))["instances"]
    assert [row["id"] for row in descending] == sorted((row["id"] for row in descending), reverse=True)


def test_a_computed_column_cannot_be_filtered_and_a_bad_token_is_refused(opened: Any) -> None:
    one = opened()
    answer = one.http.get("/api/v1/instances/", params={"select_filters": '{"dph_total": {"lt": 2}}'})
    expected = "Error in query parameters: dph_total is not a valid search key"
    assert (answer.status_code, answer.json()) == (400, {"error": "invalid_request", "msg": expected})
    assert one.http.get("/api/v1/instances/", params={"after_token": "?"}).json()["error"] == "invalid_token"


def test_the_old_list_is_410_for_new_accounts_alone(opened: Any) -> None:
    assert opened().http.get("/api/v0/instances/").status_code == 410
    assert opened(new_account=False).http.get("/api/v0/instances/").json() == {"instances": []}


def test_a_label_can_be_changed_but_not_be_too_long(opened: Any) -> None:
    one = opened()
    contract = running(one)
    put(one, contract, label="gpuwatch-2")
    assert one.show(contract)["label"] == "gpuwatch-2"
    assert put(one, contract, label="x" * 1025).json() == {"error": "invalid_args", "msg": "label_too_long"}
    assert put(one, contract, state="asleep").json() == {"success": False, "msg": "Invalid target state"}


def test_the_list_can_lag_behind_creates_and_destroys(opened: Any) -> None:
    one = opened(list_lag_s=20.0)
    contract = one.rented(one.market.publish())
    assert one.list()["instances"] == []
    one.clock.advance(21)
    assert len(one.list()["instances"]) == 1
    delete(one, contract)
    assert len(one.list()["instances"]) == 1
    one.clock.advance(21)
    assert one.list()["instances"] == []


def test_the_ledger_knows_creates_destroys_labels_and_who_is_alive(opened: Any) -> None:
    one = opened()
    first, second = running(one), running(one)
    delete(one, first)
    ledger = one.market.ledger
    assert [entry.instance_id for entry in ledger.creates] == [first, second]
    assert [entry.instance_id for entry in ledger.destroys] == [first]
    assert ledger.alive() == (second,)
    assert ledger.creates_by_label() == {"gpuwatch-1": 2}


def test_spend_rate_user_and_charges_agree_with_the_books(opened: Any) -> None:
    one = opened(credit_usd=50.0)
    contract = running(one, usd_hour=2.0)
    one.clock.advance(3600)
    rate = one.http.get("/api/v0/users/spend-rate/").json()
    assert (rate["gpu_cost_per_hour"], rate["has_active_resources"]) == (2.0, True)
    day = json.dumps({"day": {"gte": 0, "lte": 2_000_000_000}})
    charges = one.http.get("/api/v0/charges/", params={"select_filters": day}).json()["results"]
    bill = one.market.ledger.bill_microusd(contract)
    assert [(row["source"], row["amount"]) for row in charges] == [(f"instance-{contract}", round(bill / 1e6, 3))]
    assert one.http.get("/api/v0/users/current/").json()["credit"] == pytest.approx(50.0 - bill / 1e6)
    assert one.http.get("/api/v0/charges/").status_code == 400


def test_the_account_answer_has_the_recorded_keys(opened: Any) -> None:
    recorded = json.loads((RECORDED / "users_current_reconstructed.json").read_text())
    assert set(opened().http.get("/api/v0/users/current/").json()) == set(recorded)
