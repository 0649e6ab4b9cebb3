from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from perfwrap.rules.data_loading import data_loader_single_process as rule
from perfwrap.rules.model import Answer, Clear, Finding, Rule


def write(loop: Any, wait: float, steps: int = 40, **settings: object) -> None:
    loop.loader(**settings)
    for _ in range(steps):
        loop.batch(wait)
        loop.compute()


def test_a_slow_loader_without_workers_is_found_at_the_line_that_made_it(
    loop: Any, find: Callable[[Rule], Finding]
) -> None:
    write(loop, wait=10)
    loop.cores(8, busy=1)
    finding = find(rule)
    assert finding.share == pytest.approx(0.5, abs=0.02)
    assert str(finding.location) == "train.py:12"
    assert finding.severity == "critical"
    assert "num_workers=2" in finding.advice
    assert finding.experiment == "workers=2"


def test_as_many_workers_are_advised_as_keep_up_with_the_step(
    loop: Any, find: Callable[[Rule], Finding]
) -> None:
    write(loop, wait=35)
    loop.cores(16, busy=1)
    finding = find(rule)
    assert finding.experiment == "workers=4"
    best, worst = finding.saving
    assert 0.95 * 10 / 45 <= best < worst < 1


def test_training_on_a_cpu_shares_its_cores_with_the_workers(
    loop: Any, find: Callable[[Rule], Finding]
) -> None:
    write(loop, wait=35)
    loop.cores(2, busy=1)
    finding = find(rule)
    # 35 ms on one core and 10 ms on two are 55 ms of work, 45 ms if the second thread only waited for the first.
    assert finding.experiment == "workers=2+threads=1"
    assert "torch.set_num_threads(1)" in finding.advice
    best, worst = finding.saving
    assert 0.95 * 22.5 / 45 <= best < 27.5 / 45 < worst < 0.97


def test_training_on_a_gpu_keeps_the_core_that_launches(
    make_loop: Callable[..., Any], find: Callable[[Rule], Finding]
) -> None:
    loop = make_loop(**{"model/Net/device": "cuda:0"})
    write(loop, wait=35)
    loop.cores(4)
    finding = find(rule)
    assert finding.experiment == "workers=3"
    assert "set_num_threads" not in finding.advice


def test_busy_cores_bound_what_is_promised(loop: Any, find: Callable[[Rule], Finding]) -> None:
    write(loop, wait=10)
    loop.cores(2)
    loop.sample("process/100", "cpu_cores", 1.4)
    # 28 ms of work in 20 ms, of which the batch is 10: the other work keeps 1.8 cores busy and would get one.
    finding = find(rule)
    assert finding.experiment == "cached-batch"
    assert finding.saving[1] == 1.0


def test_without_a_core_to_spare_no_worker_is_advised(loop: Any, find: Callable[[Rule], Finding]) -> None:
    write(loop, wait=10)
    loop.cores(2)
    loop.sample("process/100", "cpu_cores", 1.9)
    finding = find(rule)
    assert finding.experiment == "cached-batch"
    assert "no core is free" in finding.advice


def test_a_single_core_is_not_promised_anything(loop: Any, find: Callable[[Rule], Finding]) -> None:
    write(loop, wait=10)
    loop.cores(1)
    finding = find(rule)
    assert finding.experiment == "cached-batch"
    assert finding.saving[1] == 1.0
    assert "num_workers" not in finding.advice
    assert "no core is free" in finding.advice


def test_batches_cheaper_to_make_than_to_send_are_not_given_workers(
    loop: Any, find: Callable[[Rule], Finding]
) -> None:
    loop.loader()
    for _ in range(40):
        loop.batch(0.3)
        loop.compute(0.3, 0.3, 0.1)
    loop.cores(8, busy=1)
    finding = find(rule)
    assert finding.experiment == "cached-batch"
    assert "__getitems__" in finding.advice


@pytest.mark.parametrize(
    ("collate", "severity"), [("default_convert", "note"), ("default_collate", "critical")]
)
def test_a_loader_that_gets_whole_batches_already_is_at_most_a_note(
    loop: Any, find: Callable[[Rule], Finding], collate: str, severity: str
) -> None:
    loop.loader()
    loop.cores(2)
    for _ in range(40):
        with loop.journal.inside("data", "loader/1", 32):
            loop.journal.now += 1000
            with loop.journal.inside("fetch", "Data", 32):
                loop.span("getitem", 0.25, "TensorDataset.__getitem__", 32)
                loop.span("collate", 0.05, collate, 32)
        loop.compute(0.4, 0.5, 0.1)
    finding = find(rule)
    assert ("Prepare the batches" in finding.advice) == (severity == "note")
    assert finding.max_severity == severity


def test_persistent_workers_are_advised_when_there_are_several_epochs(
    loop: Any, find: Callable[[Rule], Finding]
) -> None:
    loop.loader()
    for _ in range(4):
        loop.span("loader_start", 0.1, "loader/1", 0, 20)
        for _ in range(15):
            loop.batch(10)
            loop.compute()
        loop.span("data_end", 0.1, "loader/1", 0, 20)
    loop.cores(8, busy=1)
    assert "persistent_workers=True" in find(rule).advice


def test_a_loader_that_hardly_waits_is_clear(loop: Any, ask: Callable[[Rule], Answer]) -> None:
    write(loop, wait=0.1)
    assert isinstance(ask(rule), Clear)


def test_a_loader_with_workers_is_not_this_problem(loop: Any, ask: Callable[[Rule], Answer]) -> None:
    write(loop, wait=10, num_workers=2)
    assert isinstance(ask(rule), Clear)


def test_too_few_steps_are_not_checked(loop: Any, diagnosis: Callable[[], Any]) -> None:
    write(loop, wait=10, steps=8)
    outcome = {outcome.rule: outcome for outcome in diagnosis().outcomes}["data_loader_single_process"]
    assert outcome.state == "not checked"
    assert "20" in outcome.why


def test_samples_are_set_against_collation_where_both_were_recorded(
    loop: Any, find: Callable[[Rule], Finding]
) -> None:
    loop.loader()
    for _ in range(40):
        with loop.journal.inside("data", "loader/1", 32):
            loop.journal.now += 1000
            with loop.journal.inside("fetch", "Data", 32):
                loop.span("getitem", 2, "__main__.Data.__getitem__", 32, line=7)
                loop.span("collate", 8, "__main__.pad", 64, line=9)
        loop.compute()
    words = " ".join(find(rule).evidence)
    assert (
        "2 ms for its samples (Data.__getitem__, train.py:7), 8 ms for collation (pad, train.py:9)." in words
    )


def write_parts(loop: Any, getitem: float, collate: float) -> None:
    loop.loader()
    for _ in range(40):
        with loop.journal.inside("data", "loader/1", 32):
            loop.journal.now += 1000
            with loop.journal.inside("fetch", "Data", 32):
                loop.span("getitem", getitem, "__main__.Data.__getitem__", 32, line=7)
                loop.span("collate", collate, "__main__.pad", 64, line=9)
        loop.compute()


def test_on_few_cores_a_cheaper_dataset_gains_more_than_workers(
    loop: Any, find: Callable[[Rule], Finding]
) -> None:
    write_parts(loop, 29, 1)
    loop.cores(2, busy=1)
    finding = find(rule)
    cheaper, workers = finding.options
    assert cheaper.edit == "Make Data.__getitem__ (train.py:7) cheaper."
    assert cheaper.basis == "97 % of making a batch"
    assert (str(finding.problem), str(finding.location)) == ("train.py:12", "train.py:7")
    assert cheaper.saving[1] == 1.0
    assert workers.edit == "Pass num_workers=2 to the DataLoader at train.py:12."
    assert workers.basis == "30 ms per batch, 10 ms for the rest of the step, 2 cores"
    assert workers.saving[0] > cheaper.saving[0]


def test_on_many_cores_workers_come_first(loop: Any, find: Callable[[Rule], Finding]) -> None:
    write_parts(loop, 29, 1)
    loop.cores(16, busy=1)
    assert [option.experiment for option in find(rule).options] == ["workers=3", "cached-batch"]


def test_a_function_that_takes_little_of_making_a_batch_is_not_to_be_made_cheaper(
    loop: Any, find: Callable[[Rule], Finding]
) -> None:
    write_parts(loop, 15, 15)
    loop.cores(16, busy=1)
    assert [option.experiment for option in find(rule).options] == ["workers=3"]


def test_garbage_that_is_collected_while_a_batch_is_made_is_not_its_making(
    loop: Any, find: Callable[[Rule], Finding]
) -> None:
    loop.loader()
    for _ in range(40):
        with loop.journal.inside("data", "loader/1", 32):
            loop.journal.now += 6 * 1_000_000
            loop.span("gc", 4, value=2)
        loop.compute()
    assert find(rule).share == pytest.approx(0.3, abs=0.01)


def test_while_other_programs_use_the_cores_workers_may_gain_nothing(
    loop: Any, find: Callable[[Rule], Finding]
) -> None:
    write(loop, wait=35)
    loop.monitor().fact("cores_online", 4)
    loop.cores(4, busy=4)
    loop.sample("process/100", "cpu_cores", 1)
    finding = find(rule)
    assert finding.saving[0] < 0.5
    assert finding.saving[1] == 1.0
    assert any("Other programs used the cores" in sentence for sentence in finding.evidence)


def test_a_daemon_is_not_advised_workers(loop: Any, find: Callable[[Rule], Finding]) -> None:
    write(loop, wait=35, daemon=True)
    loop.cores(16, busy=1)
    (option,) = find(rule).options
    assert option.experiment == "cached-batch"
    assert "its process is a daemon" in option.details


def test_a_worker_that_may_help_is_only_to_be_tried(loop: Any, find: Callable[[Rule], Finding]) -> None:
    write_parts(loop, 9.5, 0.5)
    loop.cores(2)
    loop.sample("process/100", "cpu_cores", 1.9)
    cheaper, tried = find(rule).options
    assert cheaper.edit == "Make Data.__getitem__ (train.py:7) cheaper."
    assert tried.edit == "Try num_workers=1 for the DataLoader at train.py:12."
    # As simulated: beside two threads of the training, a worker would make steps longer.
    assert tried.experiment == "workers=1+threads=1"
    assert "torch.set_num_threads(1)" in tried.advice
    assert tried.saving[0] < 0.97 <= tried.saving[1]


def test_a_worker_for_an_idle_core_is_to_be_tried_although_no_costly_function_is_known(
    loop: Any, find: Callable[[Rule], Finding]
) -> None:
    write(loop, wait=5)
    loop.cores(2)
    loop.sample("process/100", "cpu_cores", 1.0)
    cheaper, tried = find(rule).options
    assert "the cores get slower while more of them are busy" in cheaper.advice
    assert tried.edit == "Try num_workers=1 for the DataLoader at train.py:12."
    # No more than the whole wait disappears.
    assert cheaper.saving[0] <= tried.saving[0] < 0.97 <= tried.saving[1]


def test_while_others_use_the_cores_nothing_is_said_twice(loop: Any, find: Callable[[Rule], Finding]) -> None:
    write(loop, wait=10)
    loop.monitor().fact("cores_online", 2)
    loop.cores(2, busy=2)
    loop.sample("process/100", "cpu_cores", 0.7)
    finding = find(rule)
    assert any("Other programs used the cores" in sentence for sentence in finding.evidence)
    assert "orkers" not in finding.advice


def test_a_batch_that_takes_somewhat_longer_than_sending_is_not_said_to_gain_nothing(
    loop: Any, find: Callable[[Rule], Finding]
) -> None:
    write(loop, wait=1.5)
    loop.cores(2)
    loop.sample("process/100", "cpu_cores", 1.0)
    (only,) = find(rule).options
    assert "may gain nothing" in only.details
    # A worker beside the threads of the training is simulated to cost more than it gains, in the middle of its range:
    # for such a loop of a public program (7 ms per batch, 28 ms for the rest, 2 cores) it was, by 29 %.
    assert only.experiment != "workers=1+threads=1"
