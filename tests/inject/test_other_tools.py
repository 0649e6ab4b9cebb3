"""Tools that use the same ways into an interpreter work beside perfwrap, whichever comes first."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from importlib.util import find_spec
from itertools import permutations
from pathlib import Path

import pytest
from perfwrap.monitors.processes.uninjected import explain

BIN = Path(sys.executable).parent
QUIET = {
    "DD_TRACE_ENABLED": "false",
    "DD_INSTRUMENTATION_TELEMETRY_ENABLED": "false",
    "DD_REMOTE_CONFIGURATION_ENABLED": "false",
    "NEW_RELIC_LICENSE_KEY": "x" * 40,
    "NEW_RELIC_APP_NAME": "test",
    "NEW_RELIC_DEVELOPER_MODE": "true",
    "NEW_RELIC_LOG": "/dev/null",
    "OTEL_TRACES_EXPORTER": "none",
    "OTEL_METRICS_EXPORTER": "none",
    "OTEL_LOGS_EXPORTER": "none",
}
"""Keeps the tools from talking to anybody."""

TOOLS = {
    "ddtrace": ([BIN / "ddtrace-run"], "ddtrace.bootstrap.sitecustomize"),
    "newrelic": ([BIN / "newrelic-admin", "run-program"], "newrelic"),
    "opentelemetry.instrumentation": ([BIN / "opentelemetry-instrument"], "opentelemetry.instrumentation"),
}


def need(module):
    """Skip when the tool is not in this environment."""
    try:
        found = find_spec(module)
    except ImportError:
        found = None
    if found is None:
        pytest.skip(f"{module} is not installed here")


@pytest.fixture(params=[False, True], ids=["no user file", "user file"])
def user(request, write):
    """A directory with a sitecustomize of the user's, or an empty one."""
    if request.param:
        return write("user/sitecustomize.py", "print('user file')").parent
    return write("user/empty.txt").parent


def program(tool):
    """Return a program that says who is there, and imports torch."""
    return textwrap.dedent(
        f"""
        import os, sys
        print("tool", {TOOLS[tool][1]!r} in sys.modules, "perfwrap", hasattr(sys, "_perfwrap"))
        print(any(os.path.basename(entry) == ".inject" for entry in sys.path))
        import torch
        """
    )


@pytest.mark.parametrize("tool", ["ddtrace", "newrelic"])
def test_a_tool_inside_perfwrap(make_run, fake_torch, user, tool):
    need(tool)
    run = make_run(f"{user}:{fake_torch}").wait_for("torch")
    done = run.start(*TOOLS[tool][0], sys.executable, "-c", program(tool), more=QUIET)
    assert done.returncode == 0, done.stderr
    expected = ["user file"] * (user / "sitecustomize.py").exists() + ["tool True perfwrap True", "False"]
    assert done.stdout.splitlines()[-len(expected) :] == expected
    assert run.said().count("ran torch") == 1
    started = [start["pid"] for start in run.starts() if "import torch" in start["argv"]]
    assert len(set(started)) == 1


@pytest.mark.parametrize("tool", TOOLS)
def test_perfwrap_inside_a_tool(make_run, fake_torch, user, tool):
    need(tool)
    run = make_run(f"{user}:{fake_torch}").wait_for("torch")
    # What `TOOL perfwrap run -- python` comes to: our directory before whatever the tool has put there.
    inner = f'PYTHONPATH="{run.hook}:$PYTHONPATH" exec "$@"'
    words = [*TOOLS[tool][0], "sh", "-c", inner, "sh", sys.executable, "-c", program(tool)]
    done = run.start_bare(*words, more=QUIET)
    assert done.returncode == 0, done.stderr
    says = done.stdout.splitlines()
    assert says[-2:] == ["tool True perfwrap True", "False"]
    if tool == "opentelemetry.instrumentation":  # it hides the user's file itself
        bare = run.start_bare(*TOOLS[tool][0], sys.executable, "-c", "print('bare')", more=QUIET)
        assert says.count("user file") == bare.stdout.count("user file")
    else:
        assert says[-3:-2] == ["user file"] * (user / "sitecustomize.py").exists()
    assert run.said().count("ran torch") == 1


def test_opentelemetry_inside_perfwrap_hides_it_and_is_named(make_run, fake_torch, write):
    need("opentelemetry.instrumentation")
    run = make_run(str(fake_torch)).wait_for("torch")
    code = "import os, sys; print(os.getpid(), flush=True); sys.stdin.readline()"
    script = write("who.py", code)
    words = [str(word) for word in [*TOOLS["opentelemetry.instrumentation"][0], sys.executable, script]]
    with subprocess.Popen(
        words, env={**run.environment, **QUIET}, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        pid = int(process.stdout.readline())
        reason = explain(pid, run.hook)
        process.communicate("\n")
    vectors = [start["vector"] for start in run.starts() if str(script) == start["argv"].split("\x1f")[-1]]
    if sys.prefix == sys.base_prefix:  # the second name is found outside of virtual environments only
        assert "usercustomize" in vectors
    else:
        assert "shadowed by" in reason and "auto_instrumentation/sitecustomize.py" in reason


FINDERS = {
    "perfwrap": "import importlib.util; importlib.util.find_spec('torch')",
    "wrapt": """
        import wrapt
        wrapt.when_imported('torch.optim')(lambda module: print('wrapt', module.__name__))
    """,
    "ddtrace": """
        from ddtrace.internal.module import ModuleWatchdog
        ModuleWatchdog.install() if not ModuleWatchdog.is_installed() else None
        ModuleWatchdog.register_module_hook('torch.optim', lambda module: print('ddtrace', module.__name__))
    """,
}


@pytest.mark.parametrize("order", list(permutations(FINDERS)), ids=" ".join)
def test_each_finder_sees_the_import_once_in_any_order(make_run, fake_torch, order):
    need("wrapt")
    if "ddtrace" in order:
        need("ddtrace")
    run = make_run(str(fake_torch)).wait_for("torch", "torch.optim")
    code = "\n".join(textwrap.dedent(FINDERS[tool]) for tool in order) + "\nimport torch\n"
    done = run.start(sys.executable, "-c", code, more=QUIET)
    assert (done.returncode, done.stderr) == (0, "")
    assert sorted(done.stdout.splitlines()) == ["ddtrace torch.optim", "wrapt torch.optim"]
    assert run.said() == ["started", "ran torch.optim", "ran torch"]


def test_wrapt_alone_sees_the_import_once(make_run, fake_torch):
    need("wrapt")
    for order in permutations(("perfwrap", "wrapt")):
        run = make_run(str(fake_torch)).wait_for("torch", "torch.optim")
        code = "\n".join(textwrap.dedent(FINDERS[tool]) for tool in order) + "\nimport torch\n"
        done = run.same(sys.executable, "-c", code)
        assert done.stdout == "wrapt torch.optim\n"
        assert run.said() == ["started", "ran torch.optim", "ran torch"]


@pytest.mark.parametrize("patch", ["", "patch = subprocess"], ids=["plain", "subprocesses"])
def test_the_figures_of_coverage_stay_the_same(make_run, fake_torch, write, tmp_path, patch):
    need("coverage")
    write("work/program.py", "import subprocess, sys, torch\nsubprocess.run([sys.executable, 'child.py'])\n")
    work = write("work/child.py", "import torch\nif torch is None:\n    print('never')\n").parent
    # The real torch lies where coverage does not look by itself.
    write("work/.coveragerc", f"[run]\nparallel = true\nomit = */fake/*\n{patch}\n")
    run = make_run(str(fake_torch))
    reports = []
    for start in (run.start_bare, run.start):
        for words in (["run", "program.py"], ["combine"], ["report"]):
            done = start(sys.executable, "-m", "coverage", *words, cwd=work)
            assert done.returncode == 0, done.stdout + done.stderr
        reports.append(done.stdout)
    bare, injected = (
        [line.split() for line in report.splitlines() if "---" not in line] for report in reports
    )
    assert [row for row in injected if "sitecustomize" not in row[0]] == bare
    assert all(row[1] == "0" for row in injected if "sitecustomize" in row[0])
