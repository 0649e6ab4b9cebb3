"""The figures that rules read: loaders, syncs, pauses, checkpoints, gaps, spread, start and so on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from perfwrap.journal_format import GRAD, TRAINING
from perfwrap.measures.account.account import find_account
from perfwrap.measures.account.lines import Line
from perfwrap.measures.account.loop_figures import gpu_utilization
from perfwrap.measures.data_loading.loaders import find_loaders
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.gpu.gpu_state import find_gpus, gpus_between
from perfwrap.measures.health.non_finite import find_non_finite
from perfwrap.measures.host.processors import find_processors
from perfwrap.measures.loop.checkpoints import find_checkpoints
from perfwrap.measures.loop.garbage import find_garbage
from perfwrap.measures.loop.python_gaps import find_python_gaps
from perfwrap.measures.loop.syncs import find_syncs
from perfwrap.measures.main_trainer import find_main_trainer
from perfwrap.measures.recorder.own_cost import SAMPLE_NS, find_own_cost
from perfwrap.measures.run.start_up import find_start_up
from perfwrap.measures.steps.slow_steps import find_slow_steps
from perfwrap.measures.steps.steps import find_steps
from perfwrap.measures.steps.validation import find_validation
from perfwrap.measures.trainers import Trainer, find_trainers
from perfwrap.rules.needs import why_missing

MILLISECOND = 1_000_000


def of(run: Any, figure: Callable[[Evidence, Trainer], Any]) -> Any:
    """Return a figure of the only trainer."""
    evidence = Evidence(run.read())
    return evidence.get(figure, evidence.get(find_trainers)[0])


def test_evidence_is_worked_out_once(run) -> None:
    run.journal().step()
    evidence = Evidence(run.read())
    trainer = evidence.get(find_trainers)[0]
    for figure in (find_steps, find_account, find_loaders, find_syncs, find_slow_steps, find_start_up):
        assert evidence.get(figure, trainer) is evidence.get(figure, trainer), figure


def test_the_lowest_rank_represents_the_run(run) -> None:
    for pid, rank in ((100, 1), (200, 0)):
        run.journal(pid=pid, rank=rank).step()
    main = Evidence(run.read()).get(find_main_trainer)
    assert main is not None
    assert main.rank == 0


def test_a_loaders_settings_come_from_its_facts(run) -> None:
    journal = run.journal()
    for key, value in {
        "num_workers": 0,
        "batch_size": 32,
        "pin_memory": False,
        "persistent_workers": True,
        "dataset": "torchvision.datasets.cifar.CIFAR10",
        "dataset_len": 50_000,
        "created": "train.py\x1f12\x1fmain",
    }.items():
        journal.fact(f"loader/1/{key}", value)
    for _ in range(30):
        journal.step()
    (loader,) = of(run, find_loaders)
    assert (loader.workers, loader.batch_size, loader.pin_memory, loader.persistent_workers) == (
        0,
        32,
        False,
        True,
    )
    assert (loader.dataset_length, loader.prefetch_factor) == (50_000, None)
    assert loader.created == Line("train.py", 12, "main")
    assert (loader.training, loader.batches, loader.wait_ns, loader.share) == (True, 30, 300, 0.1)
    assert (loader.fetch_ns, loader.fetch_basis) == (10.0, "measured")


def test_the_start_of_an_epoch_costs_its_iterator_and_a_slow_first_batch(run) -> None:
    journal = run.journal(**{"loader/1/num_workers": 2})
    for _ in range(4):
        journal.span("loader_start", 50, "loader/1", 2)
        journal.data(90)
        journal.forward()
        journal.backward()
        journal.optimizer()
        for _ in range(20):
            journal.step()
        journal.span("data_end", 30, "loader/1")
    (loader,) = of(run, find_loaders)
    assert loader.epochs == 4
    assert loader.median_start_ns == 50 + (90 - 10)
    assert loader.start_ns == loader.starts * 130
    assert loader.wait_ns >= loader.start_ns


def test_a_validation_loader_is_distinguished_from_a_training_loader(run) -> None:
    journal = run.journal()
    for _ in range(3):
        for _ in range(10):
            journal.step()
        journal.validate()
    assert {loader.name: loader.training for loader in of(run, find_loaders)} == {
        "loader/1": True,
        "loader/2": False,
    }


def test_workers_that_are_the_limit_show_what_a_batch_takes(run) -> None:
    journal = run.journal(**{"loader/1/num_workers": 4})
    for _ in range(40):
        journal.data(80)
        journal.optimizer(20)
    (loader,) = of(run, find_loaders)
    assert (loader.fetch_basis, loader.fetch_ns) == ("throughput", 4 * 100.0)


def test_workers_that_keep_up_show_it_by_their_processor_time(run) -> None:
    journal = run.journal(**{"loader/1/num_workers": 2})
    for _ in range(40):
        journal.data(1)
        journal.optimizer(99)
    run.journal(pid=101, role="worker", ppid=100)
    monitor = run.journal(pid=50, role="monitor")
    for time in range(1_000, 5_001, 500):
        monitor.sample("process/101", "cpu_cores", 0.5, time)
    (loader,) = of(run, find_loaders)
    assert (loader.fetch_basis, loader.fetch_ns) == ("worker cpu", 0.5 * 4_000 / 40)


def test_workers_of_a_fork_server_are_the_trainers(run) -> None:
    journal = run.journal(**{"loader/1/num_workers": 1})
    for _ in range(40):
        journal.data(1)
        journal.optimizer(99)
    run.journal(pid=90, role="helper", ppid=100)
    run.journal(pid=101, role="worker", ppid=90)
    run.journal(pid=102, role="worker", ppid=4_000)
    monitor = run.journal(pid=50, role="monitor")
    for time in range(1_000, 5_001, 500):
        monitor.sample("process/101", "cpu_cores", 0.5, time)
        monitor.sample("process/102", "cpu_cores", 9.0, time)
    (loader,) = of(run, find_loaders)
    assert loader.fetch_ns == 0.5 * 4_000 / 40


def test_thinned_batches_count(run) -> None:
    journal = run.journal()
    for _ in range(20):
        journal.step()
    begin = journal.now
    journal.describe("THIN", start=begin, value=0)
    journal.sum("data", begin, 30, 600, "loader/1")
    journal.sum("optimizer", begin, 30, 150, "SGD#1")
    journal.python(3_000)
    journal.describe("THIN", start=journal.now, value=2)
    for _ in range(4):
        journal.step()
    (loader,) = of(run, find_loaders)
    assert (loader.batches, loader.wait_ns) == (54, 840)


def test_syncs_are_counted_and_timed_by_line(run) -> None:
    journal = run.journal()
    for number in range(20):
        journal.step()
        for _ in range(2):
            journal.span("sync", 6, "Tensor.item", line="train.py:31:main", value=int(number == 3))
        journal.span("sync", 1, "Tensor.tolist", line="train.py:40:main")
        journal.python(4)
    journal.optimizer()
    item, tolist = of(run, find_syncs)
    assert (item.name, item.where, item.count, item.blocked_ns) == (
        "Tensor.item",
        Line("train.py", 31, "main"),
        40,
        240,
    )
    assert item.per_step == pytest.approx(40 / 21)
    assert (item.on_gpu, tolist.on_gpu) == (True, False)
    assert item.share == pytest.approx(240 / (20 * 117 + 5))


def test_syncs_without_a_line_are_shared_out_among_the_lines_of_their_name(run) -> None:
    journal = run.journal()
    for _ in range(20):
        journal.step()
        for line, times in (("train.py:31:main", 3), ("train.py:35:main", 1), ("", 8)):
            for _ in range(times):
                journal.span("sync", 5, "Tensor.item", line=line)
        journal.span("sync", 2, "Tensor.numpy")
    journal.optimizer()
    found = of(run, find_syncs)
    assert [(line.where and line.where.line, line.count, line.blocked_ns) for line in found] == [
        (31, 180, 900),
        (35, 60, 300),
        (None, 20, 40),
    ]


def test_syncs_of_a_validation_are_not_those_of_the_loop(run) -> None:
    journal = run.journal()
    for _ in range(3):
        for _ in range(10):
            journal.step()
        journal.validate()
    assert of(run, find_syncs) == ()


def test_collections_are_counted_with_the_steps_that_they_hit(run) -> None:
    journal = run.journal()
    for number in range(30):
        journal.step()
        if number % 10 == 5:
            journal.span("gc", 2 * MILLISECOND, "gc", 2)
        journal.span("gc", 3, "gc", 0)
    journal.optimizer()
    found = of(run, find_garbage)
    assert (found.count, found.longest_ns, found.steps_hit) == (33, 2 * MILLISECOND, 3)
    assert found.pause_ns == 6 * MILLISECOND + 90
    assert found.by_generation == {0: 90, 2: 6 * MILLISECOND}


def test_checkpoints_are_reported_by_line_with_size_and_rhythm(run) -> None:
    journal = run.journal()
    for number in range(30):
        journal.step()
        if number % 10 == 9:
            with journal.inside("save", "torch.save", 1_000, "train.py:50:main"):
                journal.python(30)
                journal.span("sync", 10, "Tensor.cpu")
    journal.optimizer()
    (line,) = of(run, find_checkpoints)
    assert (line.operation, line.where, line.count) == ("save", Line("train.py", 50, "main"), 3)
    assert (line.blocked_ns, line.median_ns, line.every_steps, line.bytes) == (120, 40.0, 10.0, 1_000)


def test_the_files_of_one_checkpoint_are_saved_at_a_time(run) -> None:
    journal = run.journal()
    for number in range(60):
        journal.step()
        if number % 10 == 9:
            for _ in range(2):
                journal.span("save", 30, "torch.save", 1_000, "train.py:50:main")
            journal.optimizer() if number % 20 == 9 else None  # the second file may be in another step
    (line,) = of(run, find_checkpoints)
    assert (line.count, line.at_a_time) == (12, 2.0)
    assert line.every_steps == pytest.approx(10, abs=1)


def test_a_validation_is_measured_and_its_gradients_are_noticed(run) -> None:
    journal = run.journal()
    for _ in range(3):
        for _ in range(10):
            journal.step()
        journal.validate()
    found = of(run, find_validation)
    assert (found.count, found.total_ns, found.loop_ns, found.median_ns) == (3, 126, 126, 42.0)
    assert found.phases.select("loader", "forwards").rows() == [("loader/2", 3)] * 3
    assert not found.with_grad


def test_a_validation_with_gradients_is_noticed(run) -> None:
    journal = run.journal()
    for _ in range(3):
        for _ in range(10):
            journal.step()
        journal.span("loader_start", 5, "loader/2")
        journal.data(loader="loader/2")
        journal.forward(flags=GRAD)
        journal.span("data_end", 5, "loader/2")
    assert of(run, find_validation).with_grad


def test_gaps_are_the_python_of_the_loop_by_the_lines_around_them(run) -> None:
    journal = run.journal()
    for _ in range(20):
        journal.span("forward", 20, "Net", TRAINING | GRAD, "train.py:10:main")
        journal.python(40)
        journal.span("backward", 20, "backward", line="train.py:14:main")
        journal.span("optimizer", 5, "SGD#1", line="train.py:15:main")
        journal.python(5)
    loss, rest = of(run, find_python_gaps)
    assert (loss.after, loss.until_line) == (Line("train.py", 10, "main"), 14)
    assert (loss.after_operation, loss.before_operation) == ("forward", "backward")
    assert (loss.count, loss.total_ns, loss.per_step_ns) == (20, 800, 40.0)
    assert (rest.after, rest.until_line, rest.total_ns) == (Line("train.py", 15, "main"), 10, 95)


def test_slow_steps_are_explained_by_the_part_that_they_have_more_of(run) -> None:
    journal = run.journal()
    for number in range(1, 101):
        journal.step()
        if number % 20 == 0:
            journal.span("save", 400, "torch.save", line="train.py:50:main")
        if number == 33:
            journal.python(300)
    journal.optimizer()
    found = of(run, find_slow_steps)
    assert found.p50_ns == 100
    assert found.spread > 1.5
    assert [(step.index, step.cause, step.cause_ns) for step in found.slow[:3]] == [
        (20, "checkpoint", 400),
        (33, "python", 300),
        (40, "checkpoint", 400),
    ]
    assert found.slow[0].where == Line("train.py", 50, "main")
    assert next(iter(found.causes)) == "checkpoint"


def test_the_first_step_of_an_epoch_is_said_to_be_that(run) -> None:
    journal = run.journal()
    for epoch in range(4):
        journal.span("loader_start", 300 if epoch else 5, "loader/1")
        for _ in range(20):
            journal.step()
    assert set(of(run, find_slow_steps).causes) == {"epoch start"}


def test_the_start_is_taken_apart_to_the_nanosecond(run) -> None:
    run.start(100, monotonic_ns=400)
    journal = run.journal()
    journal.span("import", 3_000, "torch")
    journal.python(700)
    journal.span("load", 50, "torch.load")
    journal.span("loader_start", 90, "loader/1")
    journal.data(200)
    journal.forward(800)
    journal.backward(300)
    journal.optimizer(70)
    for _ in range(40):
        journal.step()
    journal.describe("END")
    found = of(run, find_start_up)
    # A usual step takes 100 ns: that much of the first one is training.
    assert found.total_ns == 600 + 3_000 + 700 + 50 + 90 + 200 + 800 + 270
    assert {part: ns for part, ns in found.parts.items() if ns} == {
        "interpreter": 600,
        "import torch": 3_000,
        "load": 50,
        "loader start": 90,
        "first batch": 200,
        "first forward": 800,
        "first backward": 270,
        "rest": 700,
    }
    assert found.warm_up_steps == 1
    assert found.warm_up_excess_ns == 1_460 - 100
    assert found.run_share == pytest.approx(found.total_ns / (found.total_ns + 100 + 4_000))


def test_perfwraps_own_cost_is_recorded_and_estimated(run) -> None:
    journal = run.journal()
    for _ in range(10):
        journal.step()
        journal.span("perfwrap", 4, "clock")
    journal.optimizer()
    monitor = run.journal(pid=50, role="monitor")
    monitor.sample("sidecar", "cpu_seconds", 0.5, 0)
    monitor.sample("sidecar", "cpu_seconds", 0.6, 10 * 10**9)
    found = of(run, find_own_cost)
    assert (found.recorded_ns, found.records) == (40, 51)
    assert found.probes_ns > 0
    assert found.monitor_cores == pytest.approx(0.01)
    assert found.journal_bytes > 51 * 32


def test_perfwraps_processor_time_is_that_of_all_processes(run) -> None:
    journal = run.journal()
    for _ in range(10):
        journal.step()
    journal.optimizer()
    assert of(run, find_own_cost).processor is None, "the launcher did not see the end"
    manifest = {"command": ["python", "train.py"], "processor_seconds": {"command": 10.0, "monitors": 0.25}}
    run.folder.write_manifest(manifest)
    alone = of(run, find_own_cost).processor
    assert (alone.command, alone.monitors) == (10.0, 0.25)
    assert alone.share == pytest.approx((alone.recorder + 0.25) / (10 - alone.recorder))
    worker = run.journal(pid=101, role="worker")
    worker.span("perfwrap", 2 * 10**9, "start")
    assert of(run, find_own_cost).processor.recorder == pytest.approx(alone.recorder + 2, abs=1e-3)
    busy = run.journal(pid=102, role="worker")
    busy.span(
        "perfwrap", 3 * 10**9, "start", 10**9
    )  # beside other programs: it computed for a second of the three
    assert of(run, find_own_cost).processor.recorder == pytest.approx(alone.recorder + 3, abs=1e-3)


def test_the_processor_time_of_processes_that_nobody_waited_for_counts(run) -> None:
    run.journal().step()
    run.folder.write_manifest({"command": ["ray", "start"], "processor_seconds": {"command": 3.0}})
    monitor = run.journal(pid=50, role="monitor")
    for second in range(3):
        monitor.sample("process/100", "cpu_cores", 1.5, second * 10**9)
        monitor.sample("process/101", "cpu_cores", 0.25, second * 10**9)
        monitor.sample("process/50", "cpu_cores", 9.0, second * 10**9)
    assert of(run, find_own_cost).processor.command == pytest.approx(3.5), "the monitors' own does not count"
    run.folder.write_manifest({"command": ["ray", "start"], "processor_seconds": {"command": 4.0}})
    assert of(run, find_own_cost).processor.command == 4.0


def test_samples_that_the_training_process_makes_itself_cost_processor_time(run) -> None:
    run.folder.write_manifest({"command": ["python", "train.py"], "processor_seconds": {"command": 10.0}})
    for pid, role in ((100, "main"), (101, "worker")):
        journal = run.journal(pid=pid, role=role)
        journal.step()
        journal.span("fetch", 100, "Squares.__getitem__", value=4_000)
        cost = of(run, find_own_cost).processor.recorder
        assert cost == pytest.approx(4_000 * SAMPLE_NS / 1e9, abs=1e-3), "torch's own methods run in workers"


def test_processors_compare_what_is_wanted_with_what_there_is(run) -> None:
    journal = run.journal(threads=8, **{"loader/1/num_workers": 4})
    for _ in range(40):
        journal.step()
    monitor = run.journal(pid=50, role="monitor", cores_usable=4, cores_online=64)
    for time in (2_000, 3_000, 4_000):
        monitor.sample("host", "runnable_tasks", 9.0, time)
        monitor.sample("process/100", "cpu_cores", 2.5, time)
        monitor.sample("process/101", "cpu_cores", 1.0, time)
        monitor.sample("process/50", "cpu_cores", 0.1, time)
        monitor.sample("process/100", "involuntary_switches_per_s", 120.0, time)
    evidence = Evidence(run.read())
    found = evidence.get(find_processors, evidence.get(find_trainers)[0])
    assert (found.usable, found.online, found.trainers, found.workers) == (4.0, 64, 1, 4)
    assert (found.threads_per_trainer, found.wanted_threads) == (8, 12)
    assert (found.runnable, found.tree_busy, found.involuntary_switches_per_s) == (9.0, 3.5, 120.0)
    assert (found.busy, found.throttled_share) == (None, None)


@pytest.mark.parametrize(("quota", "usable"), [({}, 4.0), ({"cpu_quota_cores": 3}, 3.0)])
def test_ranks_that_are_bound_to_cores_of_their_own_have_them_all(run, quota, usable) -> None:
    for pid, cores in ((100, "0-1"), (200, "4,6")):
        journal = run.journal(pid=pid, cores=cores, threads=2)
        for _ in range(40):
            journal.step()
    run.journal(pid=50, role="monitor", cores_usable=2, cores_affinity=2, cores_online=8, **quota)
    evidence = Evidence(run.read())
    found = evidence.get(find_processors, evidence.get(find_trainers)[0])
    assert (found.usable, found.allowed, found.wanted_threads) == (usable, 4, 4)


def test_processes_that_are_looked_at_by_turns_are_summed_all_the_same(run) -> None:
    journal = run.journal()
    for _ in range(40):
        journal.step()
    monitor = run.journal(pid=50, role="monitor")
    for turn in range(10):
        monitor.sample("process/100", "cpu_cores", 2.5, 1_000 + 200 * turn)
        monitor.sample("process/101", "cpu_cores", 1.0, 1_100 + 200 * turn)
    evidence = Evidence(run.read())
    found = evidence.get(find_processors, evidence.get(find_trainers)[0])
    assert found.tree_busy == pytest.approx(3.5, rel=0.06)


def test_gpus_are_what_a_monitor_sampled(run) -> None:
    journal = run.journal()
    for _ in range(40):
        journal.step()
    monitor = run.journal(pid=50, role="monitor")
    monitor.fact("gpu/0/name", "NVIDIA H200")
    monitor.fact("gpu/0/memory_total_bytes", 2**37)
    for time, value in ((2_000, 0.4), (3_000, 0.6)):
        monitor.sample("gpu/0", "utilization_share", value, time)
        monitor.sample("gpu/0", "throttle/power", 1.0, time)
        monitor.sample("gpu/0", "throttle/heat", 0.0, time)
    (gpu,) = Evidence(run.read()).get(find_gpus)
    assert (gpu.name, gpu.utilization, gpu.memory_total_bytes) == ("NVIDIA H200 (gpu/0)", 0.5, 2.0**37)
    assert (gpu.power_watts, gpu.throttle_reasons) == (None, ("power",))


def test_what_a_gpu_s_units_did_is_beside_its_utilisation(run) -> None:
    journal = run.journal()
    for _ in range(40):
        journal.step()
    monitor = run.journal(pid=50, role="monitor")
    monitor.fact("gpu/0/power_limit_watts", "700")
    for time, value in ((2_000, 0.1), (3_000, 0.3)):
        monitor.sample("gpu/0", "utilization_share", 0.95, time)
        monitor.sample("gpu/0", "sm_activity_share", value, time)
        monitor.sample("gpu/0", "tensor_activity_share", 0.0, time)
        monitor.sample("gpu/0", "throttle/idle", 1.0, time)
        monitor.sample("gpu/0", "throttle/application_clocks", 1.0, time)
    (gpu,) = Evidence(run.read()).get(find_gpus)
    assert gpu.utilization == pytest.approx(0.95)
    assert gpu.activity == {"sm": pytest.approx(0.2), "tensor": 0.0}
    assert (gpu.power_limit_watts, gpu.throttle_reasons, gpu.other_processes) == (700.0, (), None)


@pytest.mark.parametrize(("owners", "expected"), [(("run", "other"), 0.3), (("unknown", "unknown"), 0.6)])
def test_the_gpus_of_other_people_say_nothing_about_the_run(
    run, owners: tuple[str, str], expected: float
) -> None:
    journal = run.journal()
    for _ in range(40):
        journal.step()
    monitor = run.journal(pid=50, role="monitor")
    for number, (owner, value) in enumerate(zip(owners, (0.3, 0.9), strict=True)):
        monitor.sample(f"gpu/{number}", "utilization_share", value, 2_000)
        monitor.fact(f"gpu/{number}/process/{100 + number}/owner", owner)
    evidence = Evidence(run.read())
    assert [gpu.of_run for gpu in evidence.get(find_gpus)] == [owners[0] == "run", False]
    assert gpu_utilization(evidence) == pytest.approx(expected)


def test_a_second_counts_the_same_however_often_a_gpu_was_sampled_in_it(run) -> None:
    journal = run.journal()
    for _ in range(40):
        journal.step()
    end = journal.now
    monitor = run.journal(pid=50, role="monitor")
    second = 1_000_000_000
    before = -(-(end + second) // second) * second
    for time, value in ((before, 0.0), (before + 1, 0.2), (before + second, 1.0)):
        monitor.sample("gpu/0", "utilization_share", value, time)
    for number in range(20):
        monitor.sample("gpu/0", "buffered/utilization_share", 1.0, before + second + number)
    (gpu,) = gpus_between(run.read(), before, before + 2 * second)
    assert gpu.utilization == pytest.approx((0.1 + 1.0) / 2)


def test_needs_are_met_when_the_evidence_is_there(run) -> None:
    journal = run.journal()
    for _ in range(30):
        journal.step()
    run.journal(pid=50, role="monitor").sample("host", "runnable_tasks", 1.0, 2_000)
    evidence = Evidence(run.read())
    for need in ("trainer", "steps", "steady_steps", "data", "syncs", "gc", "checkpoints", "host"):
        assert evidence.get(why_missing, need) is None, need


def test_needs_that_are_not_met_say_why(run) -> None:
    journal = run.journal()
    for _ in range(3):
        journal.step()
    journal.describe("COVERAGE", "probe/sync", journal.text("failed: TypeError: no"), duration=1)
    monitor = run.journal(pid=50, role="monitor")
    monitor.describe("COVERAGE", "gpu", monitor.text("no NVIDIA driver"), duration=1)
    evidence = Evidence(run.read())
    assert "only 3 recorded" in str(evidence.get(why_missing, "steady_steps"))
    assert "failed: TypeError" in str(evidence.get(why_missing, "syncs"))
    assert "no NVIDIA driver" in str(evidence.get(why_missing, "gpu"))
    assert "No host samples were recorded" in str(evidence.get(why_missing, "host"))
    assert "not recorded" in str(evidence.get(why_missing, "kernels"))
    assert "Needs call stacks" in str(evidence.get(why_missing, "stacks"))
    with pytest.raises(KeyError):
        evidence.get(why_missing, "luck")


def test_a_run_in_which_nothing_trained_says_so(run) -> None:
    run.start(77)
    evidence = Evidence(run.read())
    assert evidence.get(find_trainers) == ()
    assert evidence.get(find_main_trainer) is None
    assert "never imported torch" in str(evidence.get(why_missing, "trainer"))
    assert evidence.get(why_missing, "steps") == evidence.get(why_missing, "trainer")


def test_values_that_were_not_finite_are_listed_in_order(run) -> None:
    journal = run.journal()
    journal.step()
    journal.non_finite(float("nan"), "Tensor.item\x1ftrain.py\x1f9\x1fmain")
    found = Evidence(run.read()).get(find_non_finite)
    assert found.select("file", "line").rows() == [("train.py", 9)]
