"""What the recorder checked of a loader's items is summed up over epochs, workers and ranks."""

from __future__ import annotations

from typing import Any

import pytest
from perfwrap.measures.data_loading.loaders import find_loaders
from perfwrap.measures.data_loading.unchanged_items import CheckedItems, find_checked_items, find_memory
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.main_trainer import find_main_trainer


def write_trainer(run: Any, workers: int = 0, **facts: object) -> Any:
    settings = {"num_workers": workers, "dataset": "__main__.Data", "batch_size": 4}
    journal = run.journal(**{f"loader/1/{key}": value for key, value in settings.items()}, **facts)
    journal.now = 1_400
    for _ in range(40):
        journal.data(10)
        journal.optimizer(90)
    return journal


def items_of(run: Any) -> CheckedItems | None:
    evidence = Evidence(run.read())
    trainer = evidence.get(find_main_trainer)
    assert trainer is not None
    (loader,) = evidence.get(find_loaders, trainer)
    return evidence.get(find_checked_items, trainer, loader)


def write_items(
    journal: Any, whose: str = "loader/1", epochs: int = 2, items: int = 5, at: int = 100, change: int = 0
) -> None:
    for epoch in range(epochs):
        for index in range(items):
            place = at + 1000 * epoch + index
            journal.fact(f"item/{whose}/{index}", f"{7 + index + change * epoch} 200 {place} 0 {49 + epoch}")


def test_items_that_were_made_twice_are_compared(run: Any) -> None:
    journal = write_trainer(run)
    write_items(journal)
    journal.fact("item/loader/1/30", "1 300 5 0 50")
    found = items_of(run)
    assert found is not None
    assert (found.count, found.same, found.moved, found.are_kept) == (5, 5, False, False)
    assert (found.length, found.never_change) == (51, True)
    assert found.bytes_each == pytest.approx((10 * 200 + 300) / 11)
    assert found.bytes == found.bytes_each * 51


def test_a_known_length_is_used(run: Any) -> None:
    write_items(write_trainer(run, **{"loader/1/dataset_len": 900}))
    found = items_of(run)
    assert found is not None
    assert found.length == 900


def test_one_that_changed_is_counted(run: Any) -> None:
    journal = write_trainer(run)
    write_items(journal)
    journal.fact("item/loader/1/0", "123 200 5 0 50")
    found = items_of(run)
    assert found is not None
    assert (found.count, found.same, found.never_change) == (5, 4, False)


def test_a_generator_that_moved_once_says_that_they_may_change(run: Any) -> None:
    journal = write_trainer(run)
    write_items(journal)
    journal.fact("item/loader/1/0", "7 200 5 1 50")
    found = items_of(run)
    assert found is not None
    assert (found.same, found.never_change) == (5, False)


@pytest.mark.parametrize("value", ["unknown", "", "1 2 3", "1 2 3 4 5 6", "a b c d e"])
def test_of_items_of_unknown_types_or_damaged_figures_nothing_is_said(run: Any, value: str) -> None:
    journal = write_trainer(run)
    write_items(journal)
    journal.fact("item/loader/1/3", value)
    assert items_of(run) is None


def test_items_of_one_epoch_say_nothing(run: Any) -> None:
    write_items(write_trainer(run), epochs=1)
    assert items_of(run) is None


def test_items_of_another_loader_are_not_this_ones(run: Any) -> None:
    write_items(write_trainer(run), whose="loader/11")
    assert items_of(run) is None


@pytest.mark.parametrize(("places", "kept"), [(0, True), (1, False)], ids=["its own", "one for all"])
def test_items_that_lie_where_they_were_are_kept_unless_all_lie_there(
    run: Any, places: int, kept: bool
) -> None:
    journal = write_trainer(run)
    for _ in range(2):
        for index in range(6):
            journal.fact(f"item/loader/1/{index}", f"{index} 8 {500 if places else index} 0 5")
    found = items_of(run)
    assert found is not None
    assert found.are_kept == kept


def test_workers_of_different_epochs_are_compared(run: Any) -> None:
    journal = write_trainer(run, workers=1)
    for pid in (101, 102):
        journal.fact("loader/1/workers", str(pid))
        write_items(run.journal(pid=pid, role="worker", ppid=100), "worker", epochs=1, at=pid * 1000)
    found = items_of(run)
    assert found is not None
    assert (found.count, found.same, found.are_kept) == (5, 5, False)


def test_ranks_that_saw_few_items_twice_are_compared_with_others(run: Any) -> None:
    write_items(write_trainer(run, rank=0), epochs=1)
    other = write_trainer(run, pid=200, rank=1)
    write_items(other, epochs=1, at=900)
    found = items_of(run)
    assert found is not None
    assert (found.count, found.same) == (5, 5)


def test_the_memory_of_a_container_limits_that_of_the_host(run: Any) -> None:
    write_trainer(run)
    monitor = run.journal(pid=999, role="monitor")
    monitor.fact("memory_total_bytes", 64 << 30)
    monitor.fact("memory_limit_bytes", 8 << 30)
    evidence = Evidence(run.read())
    trainer = evidence.get(find_main_trainer)
    assert trainer is not None
    assert evidence.get(find_memory, trainer.host) == 8 << 30
    assert evidence.get(find_memory, "elsewhere") is None
