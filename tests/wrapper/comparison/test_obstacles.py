from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest
from perfwrap.comparison import obstacles
from perfwrap.comparison.obstacles import ALLOWABLE, Obstacle, program

CONDITIONS = {
    "host/name": "one",
    "host/cpu_model": "Some CPU",
    "host/cores_usable": "8",
    "gpu": "H100",
    "torch": "2.13.0",
    "torch_cuda": "12.4",
    "trainers": "2",
    "world_size": "2",
    "samples_per_step": "64",
}


def document() -> dict[str, Any]:
    return {
        "run": {"command": ["python", "train.py"], "exit": {"code": 0}, "perfwrap": "0.1"},
        "steps": {"steady": 100, "anchor": "optimizer step (SGD)"},
        "conditions": dict(CONDITIONS),
        "machine": {"cores_online": 8, "cores_busy": 2.0, "own_cores": 1.9},
    }


def find_obstacles(before: dict[str, Any], after: dict[str, Any]) -> tuple[Obstacle, ...]:
    return obstacles.find_obstacles([("a", before)], [("b", after)])


def find_cautions(before: dict[str, Any], after: dict[str, Any]) -> tuple[str, ...]:
    return obstacles.find_cautions([("a", before)], [("b", after)])


def kinds(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    return [obstacle.kind for obstacle in find_obstacles(before, after)]


def test_equal_runs_have_no_obstacles() -> None:
    assert find_obstacles(document(), document()) == ()
    assert find_cautions(document(), document()) == ()


@pytest.mark.parametrize(
    ("key", "value", "kind"),
    [
        ("host/cpu_model", "Another CPU", "host"),
        ("host/cores_usable", "4", "host"),
        ("gpu", "A100", "gpu"),
        ("gpu", None, "gpu"),
        ("torch", "2.12.0", "torch"),
        ("torch_cuda", "12.1", "torch"),
        ("trainers", "1", "world"),
        ("world_size", "4", "world"),
        ("samples_per_step", "128", "batch"),
    ],
)
def test_a_difference_that_matters_is_named_with_both_values(key: str, value: str | None, kind: str) -> None:
    other = document()
    other["conditions"][key] = value
    if value is None:
        del other["conditions"][key]
    (obstacle,) = find_obstacles(document(), other)
    assert obstacle.kind == kind
    assert kind in ALLOWABLE
    assert CONDITIONS[key] in obstacle.sentence
    assert (value or "unknown") in obstacle.sentence


@pytest.mark.parametrize("key", ["world_size", "samples_per_step"])
def test_what_only_one_run_knows_is_no_difference_where_that_is_usual(key: str) -> None:
    other = document()
    del other["conditions"][key]
    assert find_obstacles(document(), other) == ()


def test_another_script_is_another_program_and_other_options_are_not() -> None:
    other = document()
    other["run"]["command"] = ["/usr/bin/python3", "/elsewhere/train.py", "--workers", "4"]
    assert kinds(document(), other) == []
    other["run"]["command"] = ["python", "fixed.py"]
    assert kinds(document(), other) == ["command"]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["torchrun", "--nproc-per-node", "2", "train.py"], "train.py"),
        (["python", "-m", "package.train", "-m"], "package.train"),
        (["/opt/bin/my-train", "--fast"], "my-train"),
        ([], None),
    ],
)
def test_a_program_is_known_by_its_script_module_or_name(words: list[str], expected: str | None) -> None:
    assert program({"run": {"command": words}}) == expected


def test_another_optimizer_ends_a_step_just_as_well_but_a_mark_does_not() -> None:
    other = document()
    other["steps"]["anchor"] = "optimizer step (AdamW)"
    assert kinds(document(), other) == []
    other["steps"]["anchor"] = "mark of a step (ProfilerStep)"
    assert kinds(document(), other) == ["anchor"]


def test_too_few_steps_cannot_be_allowed() -> None:
    other = document()
    other["steps"]["steady"] = 19
    (obstacle,) = find_obstacles(document(), other)
    assert obstacle.kind == "steps"
    assert "The second run has 19 steady steps" in obstacle.sentence
    assert "steps" not in ALLOWABLE


@pytest.mark.parametrize(
    ("busy", "own", "switches", "crowded"),
    [
        (8.0, 2.0, None, True),
        (8.0, 2.0, 130.0, True),
        (8.0, 2.0, 3.0, False),  # it has cores of its own
        (8.0, 7.9, 130.0, False),
        (5.0, 1.0, 130.0, False),
        (None, 1.0, 130.0, False),
    ],
)
def test_others_matter_only_where_they_take_cores_away(
    busy: float | None, own: float, switches: float | None, crowded: bool
) -> None:
    other = document()
    figures = {"cores_online": 8, "cores_busy": busy, "own_cores": own, "switches_per_s": switches}
    other["machine"] = figures
    assert kinds(document(), other) == (["load"] if crowded else [])


def test_what_makes_a_comparison_weaker_is_said() -> None:
    other = deepcopy(document())
    other["conditions"]["host/name"] = "two"
    other["run"] = {**other["run"], "exit": {"signal": "SIGKILL"}, "perfwrap": "0.2"}
    other["machine"] = None
    said = " ".join(find_cautions(document(), other))
    for words in ("one and two", "SIGKILL", "was not recorded", "different versions of perfwrap"):
        assert words in said


def run(name: str, start: int, **changes: Any) -> tuple[str, dict[str, Any]]:
    found = document()
    found["run"]["start_wall_ns"] = start
    found["conditions"] |= changes
    return name, found


def test_of_several_runs_each_is_compared_with_the_first_and_called_by_its_name() -> None:
    before = [run("a1", 1), run("a2", 3, samples_per_step="32")]
    after = [run("b1", 2), run("b2", 4, samples_per_step="32")]
    after[0][1]["steps"] = {**after[0][1]["steps"], "steady": 5}
    found = obstacles.find_obstacles(before, after)
    assert [obstacle.kind for obstacle in found] == ["steps", "batch"]
    assert found[0].sentence.startswith("Run b1 has 5 steady steps")


@pytest.mark.parametrize(
    ("before", "after", "turns"),
    [((1, 3), (2, 4), True), ((1, 2), (3, 4), False), ((3, 4), (1, 2), False), ((1,), (2,), True)],
)
def test_runs_that_were_not_alternated_get_a_caution(
    before: tuple[int, ...], after: tuple[int, ...], turns: bool
) -> None:
    sides = [
        [run(f"{side}{start}", start) for start in starts] for side, starts in (("a", before), ("b", after))
    ]
    said = " ".join(obstacles.find_cautions(sides[0], sides[1]))
    assert ("Alternate the runs" in said) is not turns


def test_what_is_no_moment_and_no_version_is_not_believed() -> None:
    runs = [run("a1", 1), run("a2", 2), run("b1", 3), run("b2", 4)]
    runs[1][1]["run"] |= {"start_wall_ns": "soon", "perfwrap": ["0.1"]}
    said = " ".join(obstacles.find_cautions(runs[:2], runs[2:]))
    assert "Alternate the runs" not in said
    assert "different versions" in said
