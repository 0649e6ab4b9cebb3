"""Steps of loops that no script of the recorded ones has, and of thinned recordings."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest
from perfwrap.journal_format import GRAD, INFERENCE, TRAINING
from perfwrap.measures.account.account import find_account
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.steps.steps import Steps, find_steps
from perfwrap.measures.trainers import Trainer, find_trainers


def steps_of(run: Any) -> Steps:
    """Return the steps of the only trainer of a run."""
    timeline = run.read()
    (trainer,) = find_trainers(Evidence(timeline))
    return Evidence(timeline).get(find_steps, trainer)


def test_a_step_ends_with_its_optimizer_and_starts_where_the_last_one_ended(run) -> None:
    journal = run.journal()
    journal.python(500)
    for _ in range(3):
        journal.step()
    found = steps_of(run)
    assert found.table.select("index", "start", "end", "duration").rows() == [
        (0, 1_500, 1_600, 100),
        (1, 1_600, 1_700, 100),
        (2, 1_700, 1_800, 100),
    ]
    assert found.anchor == "optimizer step (SGD#1)"
    assert found.median_ns == 100


def test_a_program_that_only_reads_batches_has_a_step_for_each(run) -> None:
    journal = run.journal()
    for _ in range(6):
        journal.data()
    found = steps_of(run)
    assert (found.count, found.anchor, found.median_ns) == (6, "batch", 10)


def test_a_thread_that_did_nothing_of_a_step_has_none(run) -> None:
    journal = run.journal()
    journal.span("data_end", 5, "loader/1")
    timeline = run.read()
    trainer = Trainer(1, 2, "trainer", None, 100, "here")
    found = Evidence(timeline).get(find_steps, trainer)
    assert (found.count, found.steady, found.median_ns, found.samples_per_s) == (0, 0, None, None)


def test_what_follows_the_optimizer_belongs_to_the_next_step(run) -> None:
    journal = run.journal()
    for _ in range(4):
        journal.step()
        journal.span("sync", 50, "Tensor.item")
    assert steps_of(run).table["duration"].to_list() == [100, 150, 150, 150]


def test_two_loaders_that_feed_two_optimizers_in_turn_make_one_step(run) -> None:
    journal = run.journal()
    for _ in range(10):
        journal.data(loader="loader/1")
        journal.optimizer(name="Adam#1")
        journal.data(loader="loader/2")
        journal.optimizer(name="Adam#2")
    assert steps_of(run).count == 10


def test_two_loaders_that_feed_one_optimizer_in_turn_make_two_steps(run) -> None:
    journal = run.journal()
    for _ in range(10):
        for loader in ("loader/1", "loader/2"):
            journal.step(loader=loader)
    assert steps_of(run).count == 20


def test_a_batch_that_is_fetched_ahead_of_the_optimizer_changes_nothing(run) -> None:
    journal = run.journal()
    journal.data()
    for _ in range(12):
        journal.forward()
        journal.data()
        journal.backward()
        journal.optimizer()
    assert steps_of(run).count == 12


def test_a_second_phase_with_another_optimizer_and_loader_loses_no_step(run) -> None:
    journal = run.journal()
    for name, loader in (("SGD#1", "loader/1"), ("Adam#2", "loader/2")):
        for _ in range(10):
            journal.step(name=name, loader=loader)
    assert steps_of(run).count == 20


def test_the_time_between_two_trainings_is_not_in_the_steady_loop(run) -> None:
    journal = run.journal()
    for name in ("Adam#1", "Adam#2"):
        journal.python(1_000)
        for _ in range(20):
            journal.step(name=name)
    timeline = run.read()
    evidence = Evidence(timeline)
    (trainer,) = find_trainers(evidence)
    found, account = evidence.get(find_steps, trainer), evidence.get(find_account, trainer)
    assert [length.tolist() for length in found.gaps] == [[4_000], [5_000]]
    assert found.table.filter(~pl.col("steady"))["index"].to_list() == [20]
    assert account.holes == ((4_000, 5_100),)
    assert account.total_ns == 3_900
    assert account.shares["python"] == pytest.approx(0.35)


def test_optimizers_made_in_each_step_leave_all_steps_steady(run) -> None:
    journal = run.journal()
    for number in range(20):
        journal.python(1_000)
        journal.step(name=f"Adam#{number}")
    assert steps_of(run).steady == 19  # The first one is the warm-up.


def test_steps_without_detail_are_not_between_two_trainings(run) -> None:
    journal = run.journal()
    for _ in range(10):
        journal.step(name="Adam#1")
    begin = journal.now
    journal.describe("THIN", start=begin, value=0)
    journal.sum("optimizer", begin, 20, 50, "Adam#1")
    journal.python(2_000)
    journal.describe("THIN", start=journal.now, value=1)
    journal.python(700)
    for _ in range(10):
        journal.step(name="Adam#2")
    found = steps_of(run)
    assert found.count == 40
    assert found.table.filter(~pl.col("steady"))["index"].to_list() == [30]
    assert (found.gaps[1] - found.gaps[0]).tolist() == [700]


def test_optimizers_of_successive_trials_are_not_joined(run) -> None:
    journal = run.journal()
    for trial in range(5):
        for _ in range(8):
            journal.forward()
            journal.backward()
            journal.optimizer(name=f"SGD#{trial}")
    assert steps_of(run).count == 40


def test_an_optimizer_that_is_recreated_for_every_step_is_still_a_step_each(run) -> None:
    journal = run.journal()
    for number in range(30):
        journal.data()
        journal.forward()
        journal.backward()
        journal.optimizer(name=f"SGD#{number}")
    assert steps_of(run).count == 30


def test_an_optimizer_that_is_made_anew_between_the_steps_of_another_is_not_joined_to_them(run) -> None:
    journal = run.journal()
    for number in range(20):
        for _ in range(5):
            journal.backward()
            journal.optimizer(name=f"SGD#{2 * number + 1}")
        journal.optimizer(name="Adam#2")
    assert steps_of(run).count == 120


def test_a_scaler_that_skips_its_optimizer_still_ends_a_step(run) -> None:
    journal = run.journal()
    for number in range(20):
        journal.forward()
        journal.backward()
        is_skipped = number in (0, 1, 7, 18, 19)
        name = "GradScaler.step skipped" if is_skipped else "GradScaler.step"
        with journal.inside("scaler_step", name, line="train.py:9:main"):
            journal.python(2)
            if not is_skipped:
                journal.optimizer()
    assert steps_of(run).count == 20


def test_a_scaler_for_two_optimizers_makes_one_step_of_both(run) -> None:
    journal = run.journal()
    for number in range(20):
        journal.backward()
        for line, name in (("train.py:9:main", "Adam#1"), ("train.py:10:main", "Adam#2")):
            is_skipped = number == 5
            with journal.inside("scaler_step", "GradScaler.step" + " skipped" * is_skipped, line=line):
                journal.python(2)
                if not is_skipped:
                    journal.optimizer(name=name)
    assert steps_of(run).count == 20


@pytest.mark.parametrize("skipped", [(), ("Adam#1",), ("Adam#2",), ("Adam#1", "Adam#2")])
def test_a_line_that_steps_several_optimizers_by_a_scaler_makes_one_step_of_all(
    run, skipped: tuple[str, ...]
) -> None:
    journal = run.journal()
    for number in range(20):
        journal.backward()
        for name in ("Adam#1", "Adam#2"):
            is_skipped = number in (5, 6, 19) and name in skipped
            label = "GradScaler.step" + " skipped" * is_skipped
            with journal.inside("scaler_step", label, line="train.py:9:main"):
                journal.python(2)
                if not is_skipped:
                    journal.optimizer(name=name)
    assert steps_of(run).count == 20


def test_an_interrupted_step_is_not_counted(run) -> None:
    journal = run.journal()
    for _ in range(5):
        journal.step()
    journal.data()
    journal.forward()
    assert steps_of(run).count == 5


def test_epochs_and_samples_come_from_the_loaders_that_were_trained_on(run) -> None:
    journal = run.journal()
    journal.step(loader="loader/9")
    for _ in range(2):
        journal.span("loader_start", 5, "loader/1")
        for batch in (32, 32, 7):
            journal.data(batch=batch)
            journal.forward()
            journal.backward()
            journal.optimizer()
        journal.span("data_end", 1, "loader/1")
    table = steps_of(run).table
    assert table["epoch"].to_list() == [0, 1, 1, 1, 2, 2, 2]
    assert table["samples"].to_list() == [32, 32, 32, 7, 32, 32, 7]


def test_accumulated_batches_are_samples_of_one_step(run) -> None:
    journal = run.journal()
    for _ in range(4):
        for _ in range(3):
            journal.data(batch=8)
            journal.forward()
            journal.backward()
        journal.optimizer()
    found = steps_of(run)
    assert found.table["samples"].to_list() == [24] * 4
    assert found.samples_per_s == pytest.approx(24 / (3 * 60 + 5) * 1e9)


def test_samples_are_unknown_when_one_batch_of_the_step_is(run) -> None:
    journal = run.journal()
    for batch in (8, -1):
        journal.data(batch=batch)
        journal.forward()
        journal.backward()
    journal.optimizer()
    found = steps_of(run)
    assert found.table["samples"].to_list() == [None]
    assert found.samples_per_s is None


def test_a_pass_over_the_data_before_the_training_is_no_part_of_it(run) -> None:
    journal = run.journal()
    journal.span("loader_start", 5, "loader/1")
    for _ in range(5):
        journal.data()
    journal.span("data_end", 1, "loader/1")
    journal.python(10_000)
    begin = journal.now
    journal.span("loader_start", 5, "loader/1")
    for _ in range(5):
        journal.step()
    found = steps_of(run)
    assert found.table["start"][0] == begin
    assert found.table["epoch"].unique().to_list() == [0]


def test_a_loader_that_is_recreated_for_each_validation_is_still_validation(run) -> None:
    journal = run.journal()
    for epoch in range(3):
        journal.span("loader_start", 5, "loader/1")
        for _ in range(10):
            journal.step()
        journal.span("data_end", 1, "loader/1")
        journal.validate(loader=f"loader/{epoch + 2}")
    found = steps_of(run)
    assert found.count == 30
    assert found.phases.start.size == 3


def test_a_validation_before_the_training_is_not_in_the_first_step(run) -> None:
    journal = run.journal()
    journal.validate(batches=2, end=False)
    journal.python(40)
    begin = journal.now
    for _ in range(10):
        journal.step()
    found = steps_of(run)
    assert found.table["start"][0] == begin
    assert found.phases.start.tolist() == [1_000]


def test_a_validation_that_forgot_to_switch_gradients_off_is_recognised_by_its_loader(run) -> None:
    journal = run.journal()
    for _ in range(3):
        for _ in range(10):
            journal.step()
        journal.span("data_end", 1, "loader/1")
        journal.span("loader_start", 5, "loader/2")
        for _ in range(4):
            journal.data(loader="loader/2")
            journal.forward(flags=GRAD)
        journal.span("data_end", 1, "loader/2")
    assert steps_of(run).phases.start.size == 3


def test_training_in_evaluation_mode_is_training(run) -> None:
    journal = run.journal()
    for _ in range(20):
        journal.data()
        journal.forward(flags=GRAD)
        journal.backward()
        journal.optimizer()
    found = steps_of(run)
    assert (found.count, found.phases.start.size) == (20, 0)


@pytest.mark.parametrize(("step_of_environment", "phases"), [(20, 0), (0, 4)])
def test_rollouts_without_gradients_in_training_mode_are_no_validation(
    run, step_of_environment: int, phases: int
) -> None:
    journal = run.journal()
    for _ in range(4):
        for _ in range(20):
            journal.forward(flags=TRAINING)
            journal.python(step_of_environment)
        for _ in range(16):
            journal.forward()
            journal.backward()
            journal.optimizer()
    found = steps_of(run)
    assert (found.count, found.phases.start.size) == (64, phases)


def test_samples_drawn_without_gradients_in_training_mode_are_validation_unless_a_result_is_read(run) -> None:
    journal = run.journal()
    for step in range(40):
        journal.forward()
        journal.backward()
        journal.optimizer()
        if step % 10 == 9:
            for _ in range(20):
                journal.forward(flags=TRAINING, line="train.py:43")
    for _ in range(20):
        journal.forward(flags=TRAINING, line="train.py:50")
        journal.span("sync", 2, "Tensor.item", line="train.py:51")
    found = steps_of(run)
    assert (found.count, found.phases.start.size) == (40, 4)


@pytest.mark.parametrize(("read", "phases"), [("Tensor.numpy", 0), ("Tensor.item", 4)])
def test_a_policy_in_evaluation_mode_that_acts_is_no_validation(run, read: str, phases: int) -> None:
    journal = run.journal()
    for _ in range(4):
        for _ in range(20):
            journal.forward(flags=0)
            journal.span("sync", 2, read, line="rl.py:9:act")
        for _ in range(16):
            journal.forward()
            journal.backward()
            journal.optimizer()
    assert steps_of(run).phases.start.size == phases


def test_values_of_states_that_a_policy_computes_beside_its_actions_are_no_validation(run) -> None:
    journal = run.journal()
    for _ in range(4):
        for state in range(20):
            journal.forward(flags=0, line="rl.py:8:act")
            journal.span("sync", 2, "Tensor.numpy", line="rl.py:9:act")
            if state % 8 == 7:
                journal.forward(flags=0, line="rl.py:12:value_of")
                journal.forward(flags=0, line="rl.py:13:value_of")
        for _ in range(16):
            journal.forward()
            journal.backward()
            journal.optimizer()
    assert steps_of(run).phases.start.size == 0


def test_a_teacher_belongs_to_the_step_and_a_validation_beside_it_does_not(run) -> None:
    journal = run.journal()
    for step in range(40):
        journal.data()
        journal.forward(flags=0, line="train.py:20")
        journal.forward()
        journal.backward()
        journal.optimizer()
        for _ in range(3 if step % 4 == 3 else 0):
            journal.forward(flags=0, line="train.py:43")
    found = steps_of(run)
    assert (found.count, found.phases.start.size) == (40, 10)


def test_two_teachers_in_turn_belong_to_the_step(run) -> None:
    journal = run.journal()
    for step in range(40):
        journal.data()
        journal.forward(flags=0, line=f"train.py:{20 + step % 2}")
        journal.forward()
        journal.backward()
        journal.optimizer()
    assert steps_of(run).phases.start.size == 0


def test_accumulation_whose_backward_comes_once_is_training(run) -> None:
    journal = run.journal()
    for _ in range(6):
        for _ in range(4):
            journal.data()
            journal.forward()
        journal.backward()
        journal.optimizer()
    found = steps_of(run)
    assert (found.count, found.phases.start.size) == (6, 0)


def test_a_validation_over_two_loaders_at_once_is_one_phase(run) -> None:
    journal = run.journal()
    for _ in range(3):
        for _ in range(10):
            journal.step()
        for loader in ("loader/2", "loader/3"):
            journal.span("loader_start", 5, loader)
        for _ in range(4):
            journal.data(loader="loader/2")
            journal.data(loader="loader/3")
            journal.forward(flags=0)
        journal.span("data_end", 1, "loader/2")
    found = steps_of(run)
    assert (found.count, found.phases.start.size) == (30, 3)


def test_a_validation_over_part_of_the_training_data_is_validation(run) -> None:
    journal = run.journal()
    for _ in range(3):
        journal.span("loader_start", 5, "loader/1")
        for _ in range(10):
            journal.step()
        journal.span("data_end", 1, "loader/1")
        journal.validate(loader="loader/1")
    found = steps_of(run)
    assert (found.count, found.phases.start.size) == (30, 3)
    assert found.table["epoch"].unique().to_list() == [0, 1, 2]


@pytest.mark.parametrize(("read", "phases"), [("Tensor.tolist", 3), ("Tensor.to", 0), ("", 0)])
def test_a_pass_over_the_training_loader_is_a_validation_if_a_value_is_read(
    run, read: str, phases: int
) -> None:
    journal = run.journal()
    for _ in range(3):
        for _ in range(10):
            journal.step()
        journal.span("data_end", 1, "loader/1")
        journal.span("sync", 1, "Tensor.item", line="train.py:30:main")
        journal.span("loader_start", 5, "loader/1")
        for _ in range(4):
            journal.data()
            journal.forward(flags=0)
        journal.span("data_end", 1, "loader/1")
        if read:
            journal.span("transfer" if read == "Tensor.to" else "sync", 2, read, line="train.py:90:features")
    found = steps_of(run)
    assert (found.count, found.phases.start.size) == (30, phases)


def test_a_validation_with_an_endless_loader_is_distinguished_from_training(run) -> None:
    journal = run.journal()
    journal.span("loader_start", 5, "loader/2")
    for _ in range(4):
        for _ in range(10):
            journal.step()
        for _ in range(3):
            journal.data(loader="loader/2")
            journal.forward(flags=INFERENCE)
    found = steps_of(run)
    assert found.count == 40
    assert found.phases.start.size == 4


def test_the_loop_ends_with_the_validation_that_also_stood_between_steps(run) -> None:
    journal = run.journal()
    for _ in range(3):
        for _ in range(10):
            journal.step()
        journal.span("data_end", 1, "loader/1")
        journal.validate()
        journal.span("save", 20, "torch.save", line="train.py:50:main")
    end = journal.now
    journal.span("save", 500, "torch.save", line="train.py:60:main")
    found = steps_of(run)
    assert found.loop_end == end


def test_the_loop_ends_with_its_last_step_when_what_follows_is_new(run) -> None:
    journal = run.journal()
    for _ in range(10):
        journal.step()
    end = journal.now
    journal.validate()
    assert steps_of(run).loop_end == end


def test_the_final_test_is_not_part_of_the_loop(run) -> None:
    journal = run.journal()
    for _ in range(3):
        for _ in range(10):
            journal.step()
        journal.validate()
    end = journal.now
    journal.python(30)
    journal.validate(loader="loader/3", batches=40)
    assert steps_of(run).loop_end == end


def test_steps_whose_detail_was_thinned_away_are_counted_and_marked(run) -> None:
    journal = run.journal()
    for _ in range(8):
        journal.step()
    for _ in range(3):
        begin = journal.now
        journal.describe("THIN", start=begin, value=0)
        for operation, name, duration in (("data", "loader/1", 120), ("optimizer", "SGD#1", 60)):
            journal.sum(operation, begin, 12, duration, name)
        journal.python(12 * 100)
        journal.describe("THIN", start=journal.now, value=4)
        for _ in range(4):
            journal.step()
    found = steps_of(run)
    assert found.count == 8 + 3 * (12 + 4)
    assert found.table["detailed"].sum() == 8 + 3 * 4
    assert set(found.table["duration"].to_list()) == {100}


def test_a_validation_in_a_thinned_stretch_is_found_by_its_loaders_start_and_end(run) -> None:
    journal = run.journal()
    for _ in range(2):
        for _ in range(10):
            journal.step()
        journal.validate()
    begin = journal.now
    journal.describe("THIN", start=begin, value=0)
    journal.sum("optimizer", begin, 10, 50, "SGD#1")
    journal.sum("data", begin, 10, 100, "loader/1")
    journal.sum("data", begin, 3, 12, "loader/2")
    journal.python(1_000)
    journal.span("loader_start", 5, "loader/2")
    journal.python(36)
    journal.span("data_end", 1, "loader/2")
    journal.describe("THIN", start=journal.now, value=2)
    for _ in range(4):
        journal.step()
    found = steps_of(run)
    assert found.count == 34
    assert (found.phases.end - found.phases.start).tolist() == [42, 42, 42]


def test_training_in_a_pause_between_two_validations_without_a_loader_counts(run) -> None:
    journal = run.journal()

    def evaluate() -> None:
        for _ in range(12):
            journal.span("forward", 4, "Net", 0, "train.py:50:main")
            journal.python(6)

    for _ in range(20):
        journal.span("forward", 4, "Net", 3, "train.py:21:main")
        journal.span("backward", 4, line="train.py:22:main")
        journal.optimizer(name="SGD#1")
    for _ in range(3):
        evaluate()
        begin = journal.now
        journal.describe("THIN", start=begin, value=-1)
        journal.sum("optimizer", begin, 20, 0, "SGD#1")
        journal.python(500)
        journal.describe("THIN", start=journal.now, value=1)
    evaluate()
    found = steps_of(run)
    assert found.count == 20 + 3 * 20
    assert found.phases.start.size == 4


def test_a_run_that_ends_in_a_thinned_stretch_keeps_its_last_steps(run) -> None:
    journal = run.journal()
    for _ in range(8):
        journal.step()
    begin = journal.now
    journal.describe("THIN", start=begin, value=0)
    journal.sum("optimizer", begin, 10, 50, "SGD#1")
    journal.python(1_000)
    journal.describe("END")
    found = steps_of(run)
    assert found.count == 18
    assert found.table["end"][-1] == begin + 1_000


def test_thinned_steps_of_two_optimizers_are_counted_once(run) -> None:
    journal = run.journal()
    for _ in range(8):
        journal.data()
        journal.optimizer(name="Adam#1")
        journal.optimizer(name="Adam#2")
    begin = journal.now
    journal.describe("THIN", start=begin, value=0)
    for name in ("Adam#1", "Adam#2"):
        journal.sum("optimizer", begin, 10, 50, name)
    journal.python(200)
    journal.describe("END")
    assert steps_of(run).count == 18


def test_a_loader_that_is_recreated_for_each_epoch_counts_epochs(run) -> None:
    journal = run.journal()
    for epoch in range(3):
        journal.span("loader_start", 5, f"loader/{epoch}")
        for _ in range(10):
            journal.step(loader=f"loader/{epoch}")
        journal.span("data_end", 1, f"loader/{epoch}")
    table = steps_of(run).table
    assert table["epoch"].to_list() == [0] * 10 + [1] * 10 + [2] * 10
    assert table["samples"].unique().to_list() == [32]


def test_a_loader_that_goes_round_beside_the_others_counts_no_epochs(run) -> None:
    journal = run.journal()
    journal.span("loader_start", 5, "loader/9")
    for _ in range(3):
        journal.span("loader_start", 5, "loader/1")
        for _ in range(10):
            journal.data(loader="loader/1", batch=4)
            journal.data(loader="loader/9", batch=100)
            journal.forward()
            journal.backward()
            journal.optimizer()
        journal.span("data_end", 1, "loader/1")
    table = steps_of(run).table
    assert table["epoch"].n_unique() == 3
    assert table["samples"].unique().to_list() == [4]
