"""Small questions to a timeline."""

from __future__ import annotations

import pytest
from perfwrap.timeline.coverage import notes
from perfwrap.timeline.lookup import facts_of, host_facts, mean_over, samples_of


@pytest.fixture
def timeline(run):
    """A run with a trainer and a monitor."""
    run.journal(pid=100).step()
    monitor = run.journal(pid=50, role="monitor", cores_usable=4)
    for time, value in ((1_000, 1.0), (2_000, 2.0), (3_000, 6.0)):
        monitor.sample("host", "runnable_tasks", value, time)
    monitor.sample("process/100", "threads", 9.0, 1_000)
    monitor.describe("COVERAGE", "gpu", monitor.text("no driver"), start=1_000, duration=1)
    monitor.describe("COVERAGE", "host", start=1_000)
    return run.read()


def test_a_series_is_found_by_entity_and_metric(timeline) -> None:
    assert samples_of(timeline, "host", "runnable_tasks")["value"].to_list() == [1.0, 2.0, 6.0]
    assert samples_of(timeline, "process/100", "threads")["value"].to_list() == [9.0]


def test_a_series_that_was_not_sampled_is_empty(timeline) -> None:
    assert samples_of(timeline, "gpu/0", "power_watts").is_empty()
    assert samples_of(timeline, "host", "runnable_tasks", host="elsewhere").is_empty()


def test_a_mean_is_of_the_samples_inside_or_else_of_all(timeline) -> None:
    samples = samples_of(timeline, "host", "runnable_tasks")
    assert mean_over(samples, 2_000, 3_000) == 4.0
    assert mean_over(samples, 2_100, 2_200) == 3.0
    assert mean_over(samples.clear(), 0, 1) is None


def test_facts_of_hosts_and_processes(timeline) -> None:
    assert host_facts(timeline, "here")["cores_usable"] == "4"
    assert host_facts(timeline, "elsewhere") == {}
    assert facts_of(timeline, -1) == {}


def test_notes_say_why_something_was_not_watched(timeline) -> None:
    assert notes(timeline, "gpu") == ("no driver",)
    assert notes(timeline, "host") == ()
