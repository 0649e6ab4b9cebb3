from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from perfwrap.rules.data_loading import data_loader_single_process, slow_collate, slow_item, too_few_workers
from perfwrap.rules.data_loading import items_never_change as rule
from perfwrap.rules.model import Answer, Clear, Finding, NotChecked, Rule


def write(loop: Any, getitem: float = 20, collate: float = 1, **settings: object) -> None:
    loop.loader(**settings)
    for _ in range(4):
        loop.span("loader_start", 0.1, "loader/1", 0, 20)
        for _ in range(15):
            with loop.journal.inside("data", "loader/1", 32):
                loop.journal.now += 1000
                with loop.journal.inside("fetch", "Data", 32):
                    loop.span("getitem", getitem, "__main__.Data.__getitem__", 32, line=7)
                    loop.span("collate", collate, "__main__.pad", 64, line=9)
            loop.compute()


def check_items(
    journal: Any,
    whose: str = "loader/1",
    items: int = 12,
    size: int = 1 << 20,
    kept: bool = False,
    moved: int = 0,
) -> None:
    for epoch in range(2):
        for index in range(items):
            place = index if kept else 100 * epoch + index
            journal.fact(f"item/{whose}/{index}", f"{index} {size} {place} {moved} 2047")


def test_items_that_are_made_again_are_found_where_they_are_made(
    loop: Any, find: Callable[[Rule], Finding]
) -> None:
    write(loop)
    check_items(loop.journal)
    loop.cores(2)
    loop.monitor().fact("cpu_pair_speed", "1.00 1.00")
    finding = find(rule)
    assert finding.share == pytest.approx(20 / 31, abs=0.02)
    assert str(finding.location) == "train.py:7"
    assert "makes items again that never change (Data.__getitem__ at train.py:7)" in finding.title
    assert "12 of 12 checked items" in " ".join(finding.evidence)
    assert "2 GiB" in " ".join(finding.evidence)
    assert finding.options[0].edit == "Cache the items of Data.__getitem__ at train.py:7, which never change."
    assert finding.options[0].basis == "unchanged in 12 of 12 checks, 2 GiB"
    assert [option.experiment for option in finding.options[1:]] == ["cached-batch", "workers=2+threads=1"]
    assert "2 GiB for 2,048 items" in finding.advice
    best, worst = finding.saving
    assert best < 11 / 31 < worst
    assert worst == pytest.approx(1 - 0.9 * 0.75 * 20 / 31, abs=0.02)


def test_the_time_is_claimed_once(loop: Any, diagnosis: Callable[[], Any]) -> None:
    write(loop)
    check_items(loop.journal)
    loop.cores(2)
    made = diagnosis()
    rules = [finding.rule for finding in made.findings]
    assert "items_never_change" in rules
    assert "data_loader_single_process" not in rules


def test_where_workers_gain_more_that_is_said_with_a_sentence_about_the_items(
    loop: Any, ask: Callable[[Rule], Answer], find: Callable[[Rule], Finding]
) -> None:
    write(loop, getitem=8, collate=12)
    check_items(loop.journal)
    loop.cores(16, busy=1)
    assert isinstance(ask(rule), Clear)
    finding = find(data_loader_single_process)
    words = " ".join(finding.evidence)
    assert "The same bytes each epoch (12 of 12 checked items): caching them would take 2 GiB." in words
    assert [option.experiment for option in finding.options] == ["workers=3", "cached-batch"]
    assert "Cache the items" in finding.options[1].edit


def test_items_that_change_or_may_change_are_clear(loop: Any, ask: Callable[[Rule], Answer]) -> None:
    write(loop)
    check_items(loop.journal)
    loop.journal.fact("item/loader/1/0", "99 100 5 0 2047")
    answer = ask(rule)
    assert isinstance(answer, Clear)
    assert "1 of 12" in answer.why


def test_random_generators_that_moved_are_clear(
    loop: Any, ask: Callable[[Rule], Answer], find: Callable[[Rule], Finding]
) -> None:
    write(loop)
    check_items(loop.journal, moved=1)
    assert isinstance(ask(rule), Clear)
    assert "same bytes" not in " ".join(find(data_loader_single_process).evidence)


@pytest.mark.parametrize(("getitem", "found"), [(1.6, False), (20, True)], ids=["only returned", "slow"])
def test_items_that_are_kept_are_not_to_be_cached(
    loop: Any, ask: Callable[[Rule], Answer], getitem: float, found: bool
) -> None:
    write(loop, getitem)
    check_items(loop.journal, kept=True)
    assert isinstance(ask(rule), list) == found


def test_few_items_are_not_enough(loop: Any, ask: Callable[[Rule], Answer]) -> None:
    write(loop)
    check_items(loop.journal, items=3)
    assert isinstance(ask(rule), NotChecked)


def test_without_checks_it_is_not_checked(loop: Any, ask: Callable[[Rule], Answer]) -> None:
    write(loop)
    assert isinstance(ask(rule), NotChecked)


def test_items_that_cost_little_are_clear(loop: Any, ask: Callable[[Rule], Answer]) -> None:
    write(loop, getitem=0.1)
    check_items(loop.journal)
    assert isinstance(ask(rule), Clear)


def test_loaders_with_workers_are_left_to_other_rules(loop: Any, ask: Callable[[Rule], Answer]) -> None:
    write(loop, num_workers=2)
    check_items(loop.journal)
    assert isinstance(ask(rule), Clear)


def test_a_cache_that_does_not_fit_is_not_advised(
    loop: Any, ask: Callable[[Rule], Answer], find: Callable[[Rule], Finding]
) -> None:
    write(loop)
    check_items(loop.journal)
    loop.monitor().fact("memory_total_bytes", 3 << 30)
    assert isinstance(ask(rule), Clear)
    finding = find(data_loader_single_process)
    assert "caching them would take 2 GiB, too much for the 3 GiB of memory." in " ".join(finding.evidence)
    assert not any("Cache the items" in option.edit for option in finding.options)


def write_workers(loop: Any, getitem: float, collate: float = 1) -> Any:
    loop.loader(num_workers=1, workers="101", prefetch_factor=2)
    for _ in range(40):
        loop.batch(10)
        loop.compute()
    worker = loop.worker(0, getitem, collate, running_share=1, disk_wait_share=0, cpu_cores=1)
    check_items(worker, "worker")
    return worker


def test_slow_items_of_workers_are_to_be_made_once(loop: Any, find: Callable[[Rule], Finding]) -> None:
    write_workers(loop, 19)
    loop.cores(2)
    finding = find(slow_item)
    assert "12 of 12 checked items" in " ".join(finding.evidence)
    assert "Cache the items of Data.__getitem__" in finding.advice
    assert "forked workers" in finding.advice
    assert finding.saving[0] < finding.saving[1] < 1


def test_too_few_workers_know_that_items_never_change(loop: Any, find: Callable[[Rule], Finding]) -> None:
    write_workers(loop, 19)
    loop.cores(16, busy=2)
    finding = find(too_few_workers)
    assert "12 of 12 checked items" in " ".join(finding.evidence)
    assert any(option.edit.startswith("Cache the items") for option in finding.options)


def test_a_slow_collate_function_of_items_that_never_change_could_work_once(
    loop: Any, find: Callable[[Rule], Finding]
) -> None:
    write_workers(loop, 5, 15)
    assert "could be computed once" in " ".join(find(slow_collate).evidence)
