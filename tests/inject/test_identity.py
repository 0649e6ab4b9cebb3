"""What a program can find out about torch's functions, and what it makes of them, is the same under perfwrap.

Each program of ``identity_programs`` runs bare and with the recorder, and prints what it saw; each test holds a part of
both against each other. The programs take a look in many states: after the import, while steps are recorded, when
short steps are only counted ("pause"), after that, in threads, children and workers, and once something was compiled.

PERFWRAP_TEST_PYTHONS lists, separated by colons, interpreters with other versions of PyTorch that run it all as well.
With PERFWRAP_TEST_CONTROL=1 both runs are bare: whatever fails then is the fault of the tests.
"""

from __future__ import annotations

import ast
import json
import os
import re
import shutil
import subprocess
import sys
from concurrent.futures import Future, ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path

import pytest
from perfwrap.journal_format import SPANS

pytestmark = [
    pytest.mark.torch,
    pytest.mark.skipif(find_spec("torch") is None, reason="PyTorch is not installed here"),
    pytest.mark.timeout(1200),
]

PROGRAMS = Path(__file__).parent / "identity_programs"
INJECT = Path(__file__).parents[2] / "inject"
PYTHONS = [sys.executable, *filter(None, os.environ.get("PERFWRAP_TEST_PYTHONS", "").split(":"))]
IS_CONTROL = os.environ.get("PERFWRAP_TEST_CONTROL") == "1"

KNOWN = {
    r"functions_look.*-(bound|owners)-tensors": "a tensor's watched method is a `method`; the class holds a descriptor",
    r"same_names.*-(dir|class_tables)-": "names in torch's modules, and methods in vars(torch.Tensor)",
    r"tables_hold_what_is": "functions have other code, and the class holds a descriptor",
    r"as_deep_in_the_stack": "a watched method of a tensor is called by two frames more",
    r"stacks_are_as_deep": "a collate function is called by one frame more",
    r"py3(8|9|10)-.*errors_(have|of_workers_have)_their_tracebacks": (
        "up to Python 3.10 a call has one to three frames more"
    ),
    r"nothing_more_is_referred_to": "the state of a call refers to its arguments until it returns",
    r"one_who_replaces_functions_as_well": "the class holds a descriptor, so vars(torch.Tensor) has the name",
    r"other_implementations_of_the_same": "code has local names that begin with _perfwrap",
    r"same_things_are_in_the_modules": "names that begin with _perfwrap in torch's modules",
    r"compiled.*-(a_whole_step|the_step_of_an_optimizer|a_scheduler_and_clipping)-": (
        "a frame that resumes in an optimizer's step has 0 operations instead of being no graph"
    ),
    r"compiled.*torch2[0-6]\d-methods_of_a_subclass-": (  # an environment in a folder such as py312-torch260
        "up to PyTorch 2.6, Dynamo reads the descriptor of a method before it refuses a subclass: another message"
    ),
    r"compiled.*-other_functions_within_a_graph-": "one frame or one guard more",
}
"""What still differs, by a part of the test's name, and in which way; inject/README.md describes it for users."""


@pytest.fixture(autouse=True)
def known_differences(request: pytest.FixtureRequest) -> None:
    for pattern, reason in KNOWN.items():
        if re.search(pattern, request.node.name):
            request.applymarker(pytest.mark.xfail(reason=reason, strict=False))


STATES = (
    "after the import",
    "while recording",
    "in a pause",
    "in a pause, a thread",
    "in a pause, a forked child",
    "in a pause, a forked worker",
    "a spawned worker",
    "after the pause",
    "after a compilation",
)
TOPICS = (
    "identity",
    "kind",
    "names",
    "signature",
    "source",
    "pickled",
    "errors",
    "bound",
    "owners",
    "tables",
    "dynamo",
)
GROUPS = {
    "tensors": r"torch(\._tensor)?:Tensor\..*",
    "modules": r"torch:nn\..*|torch\.nn\.(modules|parallel)\b.*",
    "optimizers": r"torch:optim\..*|torch\.optim\..*|torch\.(cuda\.)?amp.*",
    "clipping, saving, autograd": (
        r"torch\.nn\.utils.*|torch:(save|load)|torch\.serialization:.*|torch\.autograd:(backward|grad)"
    ),
    "loaders": r"torch\.utils\.data.*",
    "settings": r"torch:[sgu]et?_.*|torch:use_.*|torch\.autograd\.anomaly.*|torch\.autograd:detect.*|torch\._C:_set_.*",
    "profilers": r"torch\.(autograd\.)?profiler\b.*|torch\.autograd:_.*",
    "devices": (
        r"torch\.(cuda|cuda\.memory|cuda\.streams|xpu|xpu\.streams|mps|accelerator):.*"
        r"|torch\._C:_(cuda|xpu|mps|accelerator)_.*"
    ),
    "collectives": r"torch\.distributed.*",
    "Dynamo": r"torch\._dynamo.*|torch:compile",
}
GROUPS["others"] = "".join(f"(?!(?:{group})$)" for group in GROUPS.values()) + ".*"
"""Which functions are compared together."""
SCANNED = ("after the import", "in a pause", "after the pause")

MAY_LACK = re.compile(
    r"torch\._C:_(cuda|xpu)_synchronize|torch\.(xpu|accelerator|mps):.*|torch\._C:_(accelerator|mps)_.*"
    r"|torch\.amp\.grad_scaler:GradScaler\.step|torch\._dynamo\.trace_rules:.*|torch:optim\.Optimizer\.step"
    r"|torch:nn\.Module\._wrapped_call_impl|torch\._dynamo\.callback:.*|torch\._dynamo\.utils:is_compiling|torch\._dynamo:optimize"
    r"|torch\.autograd:_enable_profiler_legacy|torch\.nn\.parallel:DistributedDataParallel\._(post_forward|sync_buffers)"
)
"""What some version of torch, or some build, does not have; everything else is looked at in each."""


def names_of(program: str, decorator: str) -> list[str]:
    """Return the functions of a program that are decorated so."""
    tree = ast.parse((PROGRAMS / f"{program}.py").read_text())
    return [
        node.name
        for node in tree.body
        if isinstance(node, ast.FunctionDef)
        and any(isinstance(found, ast.Name) and found.id == decorator for found in node.decorator_list)
    ]


class Both:
    """What a program printed bare, and what it printed under perfwrap."""

    def __init__(self, bare: Future, wrapped: Future, run) -> None:
        self._bare, self._wrapped, self.run = bare, wrapped, run

    @property
    def bare(self) -> dict:
        return self._read(self._bare.result())

    @property
    def wrapped(self) -> dict:
        return self._read(self._wrapped.result())

    @property
    def errors(self) -> tuple[list[str], list[str]]:
        """What both wrote to stderr, without times and process numbers."""
        return tuple(
            [re.sub(r"^[A-Z]\d{4} [\d:.]+ \d+ |0x[0-9a-f]+", "", line) for line in done.stderr.splitlines()]
            for done in (self._bare.result(), self._wrapped.result())
        )

    @staticmethod
    def _read(done: subprocess.CompletedProcess[str]) -> dict:
        if not hasattr(done, "read"):
            assert done.returncode == 0, done.stderr[-3000:]
            done.read = json.loads(done.stdout)
        return done.read


@pytest.fixture(scope="module")
def pool():
    """Two programs at a time."""
    with ThreadPoolExecutor(2) as pool:
        yield pool


@pytest.fixture(scope="module", params=PYTHONS, ids=[str(Path(python).parents[1].name) for python in PYTHONS])
def programs(request, pool, make_lasting_run, tmp_path_factory) -> dict[str, Both]:
    """Start each program bare and under perfwrap."""
    python, found = request.param, {}
    folder = tmp_path_factory.mktemp("identity")
    for program in PROGRAMS.glob("*.py"):
        shutil.copy(program, folder)
    instrumented = make_lasting_run().start_bare(python, str(folder / "instrumented.py"), str(INJECT))
    assert instrumented.returncode == 0, instrumented.stderr
    (folder / "instrumented.txt").write_text(instrumented.stdout)

    def start(run, is_bare: bool, *words: str) -> Future:
        start = run.start_bare if is_bare or IS_CONTROL else run.start
        more = {"PYTHONHASHSEED": 0, "OMP_NUM_THREADS": 1}
        return pool.submit(start, python, *words, cwd=folder, timeout=900, more=more)

    bare: dict[str, Future] = {}
    for name, words in (
        ("looks", ["looks.py"]),
        ("behaviours", ["behaviours.py"]),
        ("compiling", ["compiling.py"]),
        ("compiling after a pause", ["compiling.py", "pause"]),
    ):
        run = make_lasting_run()
        words[0] = str(folder / words[0])
        if words[0] not in bare:
            bare[words[0]] = start(run, True, *words)
        found[name] = Both(bare[words[0]], start(run, False, *words), run)
    return found


@pytest.fixture(scope="module")
def looks(programs):
    return programs["looks"]


@pytest.fixture(scope="module")
def behaviours(programs):
    return programs["behaviours"]


def differences(bare: object, wrapped: object, place: str = "") -> list[str]:
    """Say where two values differ."""
    if isinstance(bare, dict) and isinstance(wrapped, dict):
        found = [f"{place}: {key!r} is new" for key in wrapped if key not in bare]
        found += [f"{place}: {key!r} is missing" for key in bare if key not in wrapped]
        if not found and list(bare) != list(wrapped):
            found.append(f"{place}: another order")
        for key in bare:
            if key in wrapped:
                found += differences(bare[key], wrapped[key], f"{place}/{str(key)[:70]}")
        return found
    if isinstance(bare, list) and isinstance(wrapped, list) and len(bare) == len(wrapped):
        return [
            found
            for number, (one, other) in enumerate(zip(bare, wrapped, strict=True))
            for found in differences(one, other, f"{place}/{number}")
        ]
    if isinstance(bare, list) and isinstance(wrapped, list):
        more = [each for each in wrapped if each not in bare][:5]
        less = [each for each in bare if each not in wrapped][:5]
        return [
            f"{place}: {len(bare)} -> {len(wrapped)} items; new {str(more)[:400]}, gone {str(less)[:400]}"
        ]
    return [] if bare == wrapped else [f"{place}: {str(bare)[:200]!r} -> {str(wrapped)[:200]!r}"]


def without_frames_of_perfwrap(value: object) -> object:
    """Leave out frames that name perfwrap, which cannot be hidden up to Python 3.10."""
    if isinstance(value, dict):
        return {key: without_frames_of_perfwrap(each) for key, each in value.items()}
    if isinstance(value, list):
        return [
            without_frames_of_perfwrap(each)
            for each in value
            if not (isinstance(each, str) and "perfwrap" in each)
        ]
    return value


def hold(bare: object, wrapped: object) -> None:
    """Fail where they differ, and say where."""
    if isinstance(bare, dict) and set(bare) == {"lacks"}:
        assert wrapped == bare
        pytest.skip(f"this version has no {bare['lacks']}")
    found = differences(bare, wrapped)
    if found:
        pytest.fail("\n".join([f"{len(found)} differences", *found[:25]]), pytrace=False)


def is_new_enough(bare: dict) -> bool:
    """Say whether the program's Python is one in which tracebacks can be exactly the bare ones."""
    return tuple(bare["version"]) >= (3, 11)


# The tests of the test: bare.


def test_the_programs_look_at_what_is_there(looks) -> None:
    bare = looks.bare
    assert set(bare) == {*STATES, "again and again", "version", "steps", "instrumented"}
    for state in STATES:
        lacking = [path for path, value in bare[state]["kind"].items() if isinstance(value, dict)]
        late = state == "after the import"
        assert not [
            path for path in lacking if not MAY_LACK.fullmatch(path) and not (late and "_dynamo" in path)
        ]


def test_without_perfwrap_torchs_functions_are_those_that_stood_there_early(looks) -> None:
    for state in STATES:
        for path, found in looks.bare[state]["identity"].items():
            replaced_by_dynamo = state == "after a compilation" and path.endswith(
                ("Module.__init__", ".zero_grad")
            )
            if isinstance(found, list) and not replaced_by_dynamo:
                assert all(found[:6]), (state, path, found)
    (identities, *others) = looks.bare["again and again"]["identity"]["all"]
    assert len(others) == 1, "it differs from look to look"


@pytest.mark.parametrize("program", ["behaviours", "compiling"])
def test_without_perfwrap_the_programs_do_not_fail(programs, program: str) -> None:
    bare = programs[program].bare
    parts = bare.values() if program == "behaviours" else [bare]
    failed = [
        (name, value["failed"])
        for part in parts
        if isinstance(part, dict)
        for name, value in part.items()
        if isinstance(value, dict) and "failed" in value
    ]
    assert not failed


@pytest.mark.skipif(IS_CONTROL, reason="nothing is recorded")
@pytest.mark.parametrize("program", ["looks", "behaviours", "compiling after a pause"])
def test_the_programs_were_recorded_and_came_to_a_pause(programs, program: str) -> None:
    steps = programs[program].wrapped["steps"]
    journal = max(programs[program].run.journals(), key=lambda journal: len(journal.spans))
    assert 0 < len([kind for kind, _ in journal.spans if kind == SPANS["OPTIMIZER"]]) < steps / 2


@pytest.mark.skipif(IS_CONTROL, reason="nothing is recorded")
@pytest.mark.parametrize("program", ["looks", "behaviours", "compiling", "compiling after a pause"])
def test_no_probe_breaks(programs, program: str) -> None:
    """Not by wrong arguments, either, which some behaviours give to what is watched."""
    assert programs[program].wrapped
    for journal in programs[program].run.journals():
        assert not {name: note for name, note in journal.notes.items() if note.startswith("failed")}


def test_what_the_probes_instrument_is_looked_at(looks) -> None:
    instrumented = looks.bare["instrumented"]
    assert {"torch:Tensor.item", "torch.autograd:backward", "torch.serialization:save"} < set(instrumented)
    assert len(instrumented) > 40
    for state in STATES:
        assert set(instrumented) <= set(looks.bare[state]["kind"])


def test_every_function_is_in_one_group(looks) -> None:
    paths = looks.bare["in a pause"]["kind"]
    groups = {path: [name for name, group in GROUPS.items() if re.fullmatch(group, path)] for path in paths}
    assert not {path: found for path, found in groups.items() if len(found) != 1}


# How torch's functions look.


@pytest.mark.parametrize("group", GROUPS)
@pytest.mark.parametrize("topic", TOPICS)
def test_functions_look_as_without_perfwrap(looks, topic: str, group: str) -> None:
    def part(states: dict) -> dict:
        return {
            state: {path: value for path, value in found.items() if re.fullmatch(GROUPS[group], path)}
            for state in STATES
            if (found := states[state].get(topic))
        }

    bare, wrapped = part(looks.bare), part(looks.wrapped)
    assert topic == "dynamo" or set(bare) == set(STATES)
    if not any(bare.values()):
        pytest.skip(f"{topic} is not asked of {group}")
    hold(bare, wrapped)


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("what", ["dir", "class_tables", "hooks"])
def test_classes_and_modules_have_the_same_names(looks, what: str, state: str) -> None:
    hold(looks.bare[state][what], looks.wrapped[state][what])


def test_functions_stay_the_same_at_every_moment(looks) -> None:
    hold(looks.bare["again and again"], looks.wrapped["again and again"])


@pytest.mark.parametrize("state", SCANNED)
def test_torchs_own_tables_hold_what_is_in_the_places(looks, state: str) -> None:
    hold(looks.bare[state]["scanned"], looks.wrapped[state]["scanned"])


# What programs make of them.


@pytest.mark.parametrize("state", ["while recording", "in a pause"])
@pytest.mark.parametrize("name", names_of("behaviours", "behaviour"))
def test_programs_see_and_do_the_same(behaviours, name: str, state: str) -> None:
    bare, wrapped = behaviours.bare, behaviours.wrapped
    if name not in bare[state]:
        pytest.skip("slow: in a pause only")
    one, other = bare[state][name], wrapped[state].get(name)
    if not is_new_enough(bare):
        one, other = without_frames_of_perfwrap(one), without_frames_of_perfwrap(other)
    hold(one, other)


@pytest.mark.parametrize("when", ["compiling", "compiling after a pause"])
@pytest.mark.parametrize("name", names_of("compiling", "scenario"))
def test_programs_are_compiled_to_the_same(programs, name: str, when: str) -> None:
    bare, wrapped = programs[when].bare, programs[when].wrapped
    one, other = bare[name], wrapped.get(name)
    if not is_new_enough(bare):
        one, other = without_frames_of_perfwrap(one), without_frames_of_perfwrap(other)
    hold(one, other)


@pytest.mark.parametrize("program", ["looks", "compiling"])
def test_nothing_else_is_said(programs, program: str) -> None:
    """Not of behaviours: what is said when broken iterators are collected depends on the moment."""
    bare, wrapped = programs[program].errors
    hold(bare, wrapped)
