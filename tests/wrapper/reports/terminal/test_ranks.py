from __future__ import annotations

import io
import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from perfwrap.diagnosis.engine import diagnose
from perfwrap.diagnosis.model import Diagnosis
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.host.processors import find_processors
from perfwrap.measures.trainers import find_trainers
from perfwrap.reports import json as json_report
from perfwrap.reports.html import rank_chart as page_ranks
from perfwrap.reports.html.summary import verdict
from perfwrap.reports.terminal.page import Page
from perfwrap.reports.terminal.ranks import draw_ranks

MS = 1_000_000


def job(run: Any, ranks: int, late: int, roles: tuple[str, ...] = ()) -> None:
    """Write ranks that meet in an all-reduce, to which one of them comes 10 ms later."""
    for rank in range(ranks):
        journal = run.journal(pid=100 + rank, opened=1_000 * MS, rank=rank, world_size=ranks, cores="0-1")
        for _ in range(40):
            own = 13 if rank == late else 3
            journal.span("forward", own * MS, "Net", 3, "train.py:21:main")
            journal.span("backward", 1 * MS, line="train.py:23:main")
            journal.span("collective", (15 - own) * MS, "all_reduce", 1024, "train.py:26:main")
            journal.span("optimizer", 1 * MS, "SGD#1", line="train.py:27:main")
    for number, role in enumerate(roles):
        run.journal(pid=800 + number, role=role).python(1)


def drawn(diagnosis: Any) -> str:
    page = Page(io.StringIO(), width=80)
    draw_ranks(diagnosis, page)
    return page.text()


def test_each_rank_has_a_line_with_its_own_time_apart_from_its_waiting(run: Any) -> None:
    job(run, 2, late=1, roles=("agent", "worker", "worker", "helper"))
    text = drawn(diagnose(run.read()))
    assert "29 % of its time, 100 % of that for rank 1 (measured in collectives)" in " ".join(text.split())
    lines = {line.split("  ")[1]: line for line in text.splitlines() if line.startswith("  rank")}
    assert "59 %" in lines["rank 0"]
    assert "forward 18 %" in lines["rank 0"]
    assert "python 12 %" in lines["rank 0"], "the exchange itself, without the wait for rank 1"
    assert "100 %" in lines["rank 1"]
    assert "2 training processes, 1 launcher, 2 DataLoader workers, 1 helper" in " ".join(text.split())
    assert all(len(line) <= 80 for line in text.splitlines())


def test_of_many_ranks_the_late_one_is_shown_and_the_others_in_one_line(run: Any) -> None:
    job(run, 24, late=19)
    text = drawn(diagnose(run.read()))
    assert "rank 19" in text
    assert "16 more ranks: step 17 ms to 17 ms" in " ".join(text.split())


def test_one_process_has_no_table(run: Any) -> None:
    job(run, 1, late=0)
    assert drawn(diagnose(run.read())) == ""


def test_the_document_has_each_ranks_account_and_who_is_waited_for(run: Any) -> None:
    job(run, 2, late=1)
    reported = json.loads(json_report.text(diagnose(run.read())))
    assert reported["skew"]["latest"] == 1
    assert reported["skew"]["measured"]
    assert reported["skew"]["always_the_same"]
    first, second = reported["ranks"]
    assert sum(first["account"].values()) == 1
    assert first["meetings"]["wait_ns"] == second["meetings"]["caused_ns"] == 10 * MS
    assert (first["meetings"]["last"], second["meetings"]["count"]) == (0, second["meetings"]["last"])
    assert first["cores"] == "0-1"
    assert reported["processes"] == {"trainer": 2}


def test_the_page_has_a_map_of_the_waiting(run: Any, make_run: Callable[[], Any]) -> None:
    job(run, 2, late=1)
    found = page_ranks.ranks(diagnose(run.read(), overview=True))
    assert found is not None
    assert page_ranks.WAITING in found["maps"]
    assert len(found["heads"]) == len(found["rows"][0])
    alone = make_run()
    job(alone, 1, late=0)
    assert page_ranks.ranks(diagnose(alone.read(), overview=True)) is None


def trained(run: Any, *begins: int) -> Diagnosis:
    """Diagnose trainers without ranks, each of 20 samples/s for some 20 seconds from such a second on."""
    for number, begin in enumerate(begins):
        journal = run.journal(pid=100 + number, opened=(1 + begin) * 1_000 * MS)
        for _ in range(200 + number):
            journal.data(1 * MS, batch=2, line="train.py:20:main")
            journal.forward(59 * MS, line="train.py:21:main")
            journal.optimizer(40 * MS)
    return diagnose(run.read())


def test_trainers_one_after_another_are_not_called_side_by_side_nor_their_rates_added(run: Any) -> None:
    diagnosis = trained(run, 0, 21, 42)
    assert diagnosis.steps.samples_per_s == pytest.approx(20)
    text = " ".join(drawn(diagnosis).split())
    assert text.startswith(
        "3 training processes one after another Steps and samples/s are those of trainer 3; "
        "where the time goes is of all."
    )
    assert "side by side" not in text
    reported = json.loads(json_report.text(diagnosis))
    assert [rank["turn"] for rank in reported["ranks"]] == [1, 2, 3]
    assert reported["steps"]["trainer"] == "trainer 3"
    assert reported["steps"]["samples_per_s"] == pytest.approx(20)
    assert reported["conditions"]["trainers"] == "1"
    assert ("Training processes", "3 training processes one after another") in [
        (figure["name"], figure["value"]) for figure in verdict(diagnosis)["figures"]
    ]


def test_the_rates_of_trainers_side_by_side_are_added(run: Any) -> None:
    diagnosis = trained(run, 0, 1)
    assert diagnosis.steps.samples_per_s == pytest.approx(40)
    assert "2 training processes side by side" in drawn(diagnosis)
    assert {figures.group for figures in diagnosis.ranks} == {1}
    assert diagnosis.conditions["trainers"] == "2"


def test_training_threads_of_one_process_are_not_called_processes(run: Any) -> None:
    diagnosis = trained(run, 0, 1)
    together = replace(diagnosis, ranks=tuple(replace(figures, pid=7) for figures in diagnosis.ranks))
    assert "2 training threads side by side" in drawn(together)


def test_of_trainers_that_alternate_in_pairs_a_pair_is_added(run: Any) -> None:
    diagnosis = trained(run, 0, 1, 30, 31)
    assert diagnosis.steps.samples_per_s == pytest.approx(40)
    text = " ".join(drawn(diagnosis).split())
    assert "4 training processes, up to 2 at the same time" in text
    assert "Steps are those of trainer 4, samples/s of all beside it" in text


def test_processors_are_counted_for_the_trainers_of_one_turn(run: Any) -> None:
    trained(run, 0, 21)
    evidence = Evidence(run.read())
    assert [evidence.get(find_processors, trainer).trainers for trainer in evidence.get(find_trainers)] == [
        1,
        1,
    ]
