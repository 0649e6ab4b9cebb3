"""Which processes and threads train."""

from __future__ import annotations

from perfwrap.diagnosis.engine import diagnose
from perfwrap.measures import trainers
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.trainers import find_trainers, training_processes
from perfwrap.timeline.builder import TimelineBuilder


def test_the_process_with_optimizer_steps_is_the_trainer(run) -> None:
    run.journal(pid=100).step()
    actor = run.journal(pid=200)
    for _ in range(50):
        actor.forward()
    found = find_trainers(Evidence(run.read()))
    assert [(trainer.pid, trainer.name, trainer.rank) for trainer in found] == [(100, "trainer", None)]


def test_ranks_are_in_order_whatever_their_pids(run) -> None:
    for pid, rank in ((300, 0), (100, 2), (200, 1)):
        run.journal(pid=pid, rank=rank).step()
    found = find_trainers(Evidence(run.read()))
    assert [(trainer.rank, trainer.pid, trainer.name) for trainer in found] == [
        (0, 300, "rank 0"),
        (1, 200, "rank 1"),
        (2, 100, "rank 2"),
    ]


def test_a_rank_that_was_started_again_has_a_name_of_its_own(run) -> None:
    run.journal(pid=100, rank=0, opened=1_000).step()
    run.journal(pid=200, rank=0, opened=9_000).step()
    names = [trainer.name for trainer in find_trainers(Evidence(run.read()))]
    assert names == ["rank 0", "rank 0 (start 2)"]


def test_several_trainers_without_ranks_are_numbered_by_their_start(run) -> None:
    run.journal(pid=100, opened=5_000).step()
    run.journal(pid=200, opened=2_000).step()
    found = find_trainers(Evidence(run.read()))
    assert [(trainer.pid, trainer.name) for trainer in found] == [(200, "trainer 1"), (100, "trainer 2")]


def test_workers_agents_and_monitors_are_no_trainers(run) -> None:
    for pid, role in ((100, "worker"), (200, "monitor"), (300, "agent")):
        journal = run.journal(pid=pid, role=role)
        if role != "agent":
            journal.step()
    run.journal(pid=400).forward()
    assert [trainer.pid for trainer in find_trainers(Evidence(run.read()))] == [400]


def test_the_training_thread_is_the_one_that_steps(run) -> None:
    journal = run.journal()
    journal.name_thread(2, "trainer", 4712)
    journal.data()
    journal.thread_index = 2
    journal.step()
    timeline = run.read()
    (found,) = find_trainers(Evidence(timeline))
    assert timeline.tracks["name"][found.thread] == "trainer"


def test_two_training_threads_of_one_process_are_two_trainers(run) -> None:
    journal = run.journal()
    for index in (1, 2):
        journal.thread_index = index
        for _ in range(10):
            journal.step()
    journal.thread_index = 3
    journal.optimizer()
    assert len(find_trainers(Evidence(run.read()))) == 2


def test_a_trainer_that_is_only_seen_in_sums_is_found(run) -> None:
    journal = run.journal()
    journal.describe("THIN", start=1_000)
    journal.sum("optimizer", 1_000, 20, 400, "SGD#1")
    assert len(find_trainers(Evidence(run.read()))) == 1


def test_a_run_without_any_model_has_no_trainers(run) -> None:
    run.journal().span("import", 100, "torch")
    assert find_trainers(Evidence(run.read())) == ()


def test_a_program_that_only_predicts_counts_as_its_own_trainer(run) -> None:
    journal = run.journal()
    journal.data()
    journal.forward()
    assert len(find_trainers(Evidence(run.read()))) == 1


MOST = 16


def test_of_very_many_children_that_train_the_busiest_are_looked_at_and_the_report_says_so(
    run, monkeypatch
) -> None:
    monkeypatch.setattr(trainers, "MAX_PER_RANK", MOST)
    for number in range(MOST + 3):
        journal = run.journal(pid=100 + number, opened=1_000 * number)
        for _ in range(3 if number in {5, MOST + 2} else 1):
            journal.step()
    for rank in range(2):
        run.journal(pid=10_000 + rank, rank=rank).step()
    timeline = run.read()
    found = find_trainers(Evidence(timeline))
    alone = [trainer.pid for trainer in found if trainer.rank is None]
    assert [trainer.rank for trainer in found if trainer.rank is not None] == [0, 1]
    assert len(alone) == MOST
    assert {105, 100 + MOST + 2} <= set(alone)
    assert len(training_processes(Evidence(timeline))) == MOST + 5
    diagnosis = diagnose(timeline, ())
    assert diagnosis.processes["trainer"] == MOST + 5
    assert [words for words in diagnosis.warnings if f"the {MOST + 2} with the most steps" in words]


def test_processes_that_only_launch_kernels_are_in_the_order_of_their_first_launch() -> None:
    builder = TimelineBuilder()
    for number in range(40):
        process = builder.process("h", 100 + number)
        thread = builder.thread(process, 1, "main", 1)
        for launch in range(1 + number % 7):
            start = 1_000 * number + 10 * launch
            kind = {"operation": "cudaLaunchKernel", "name": "cudaLaunchKernel", "category": "other"}
            builder.add_row("spans", start=start, duration=5, track=thread, source="x", **kind)
    found = find_trainers(Evidence(builder.build({"imported": []})))
    assert [trainer.pid for trainer in found] == [100 + number for number in range(40)]
