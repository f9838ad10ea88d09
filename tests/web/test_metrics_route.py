"""`/metrics` beside the page: the metrics for Prometheus, including the daemon's tasks."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families

from tests import loopback_client
from tests.process.daemon_child import wait_for
from tests.web.conftest import LiveDaemon


def test_metrics_are_read_beside_the_daemon(live: LiveDaemon) -> None:
    def scrape() -> dict[str, dict[str, float]]:
        answer = loopback_client.get(f"{live.url}/metrics")
        assert answer.status_code == 200
        assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
        families = text_string_to_metric_families(answer.text)
        return {
            family.name: {",".join(sorted(each.labels.values())): each.value for each in family.samples}
            for family in families
        }

    wait_for(lambda: "vastai" in scrape()["gpuwatch_provider_healthy"] and scrape().get("gpuwatch_offers"))
    found = scrape()
    assert found["gpuwatch_store_readable"] == {"": 1}
    assert found["gpuwatch_watch_max_price_usd_gpu_hour"]["cheap"] == 2.4
    assert {"keeper", "deliver"} <= found["gpuwatch_task_last_success_timestamp_seconds"].keys()
    assert loopback_client.request("POST", f"{live.url}/metrics").status_code in {401, 403, 405}
