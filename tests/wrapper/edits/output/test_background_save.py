from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

NAME = "background_save"
LOOP = """
import torch

def main(model, folder):
    for step in range(10):
        train(model)
        torch.save({"model": model.state_dict(), "step": step}, folder + "/last.pt")  # here
"""


def test_a_save_gets_a_copy_and_a_thread(apply: Callable[..., str]) -> None:
    lines = apply(NAME, LOOP).splitlines()
    assert [line for line in lines if line.startswith("-")] == [
        '-        torch.save({"model": model.state_dict(), "step": step}, folder + "/last.pt")  # here'
    ]
    assert (
        lines[-1] == "+        save_in_background("
        'torch.save, {"model": model.state_dict(), "step": step}, folder + "/last.pt")  # here'
    )
    assert "+import copy" in lines and "+import torch" not in lines


def test_a_module_that_the_file_has_is_not_imported_again(apply: Callable[..., str]) -> None:
    assert "+import os" in apply(NAME, LOOP).splitlines()
    assert (
        "+import os" not in apply(NAME, LOOP.replace("import torch", "import os\nimport torch")).splitlines()
    )


def test_what_moves_the_file_follows_in_the_thread(apply: Callable[..., str]) -> None:
    program = """
    import os, shutil
    import torch

    class Trainer:
        def save(self, path, is_best):
            torch.save(self.model.state_dict(), path + ".part")  # here
            os.replace(path + ".part", path)
            if is_best:
                shutil.copyfile(path, os.path.join("best", "model.pt"))
    """
    changed = apply(NAME, program)
    assert '+        in_background(os.replace, path + ".part", path)' in changed
    assert '+            in_background(shutil.copyfile, path, os.path.join("best", "model.pt"))' in changed
    assert "+    wait_for_saves()" not in changed.partition("atexit.register")[2]


@pytest.mark.parametrize(
    ("line", "waits"),
    [
        ("state = torch.load(path)", True),
        ("for old in glob.glob(path): use(old)", True),
        ("size = os.path.getsize(path)", True),
        ("text = open(path).read()", True),
        ("open(log, 'a').write('x')", False),
        ("path = name.replace('a', 'b')", False),
        ("print(path)", False),
    ],
)
def test_what_may_read_the_file_waits_for_it(apply: Callable[..., str], line: str, waits: bool) -> None:
    program = f"import glob, os, torch\ndef load(path):\n    {line}\n{LOOP}"
    # One of them is in the function that saves.
    assert apply(NAME, program).count("+    wait_for_saves()") == 1 + waits


def test_what_runs_before_the_loop_does_not_wait(apply: Callable[..., str]) -> None:
    program = LOOP.replace("    for step", "    model.load_state_dict(torch.load(folder))\n    for step")
    assert "wait_for_saves()" not in apply(NAME, program).partition("register_at_fork(")[2]
    again = program.replace("        train(model)\n", "        train(model, torch.load(folder))\n")
    assert "+        wait_for_saves()" in apply(NAME, again)


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("        torch.save(", "        x = torch.save(", "does more than save"),
        ('folder + "/last.pt")', 'f=folder + "/last.pt")', "as a keyword"),
        ("import torch", "import torch, io\ndef in_background(): ...", "names that the edit needs"),
        (
            "import torch",
            "import torch\nfrom torch.distributed.fsdp import fully_shard",
            "whose state is in parts",
        ),
        ("import torch", "import torch\nx = torch.cuda.stream(s)", "streams of its own"),
        ("        train(model)", "        while os.path.exists(p): pass\n        train(model)", "may wait"),
        (
            "def main(model, folder):",
            "def run(m):\n    with TemporaryDirectory() as t:\n        return main(m, t)\n\ndef main(model, folder):",
            "may be removed before",
        ),
        (
            "        train(model)",
            "        a = torch.load(p)\n        b = torch.load(p)\n        c = torch.load(p)\n"
            "        d = torch.load(p)\n        e = torch.load(p)",
            "too many to wait",
        ),
    ],
)
def test_others_are_refused(refuse: Callable[..., str], old: str, new: str, reason: str) -> None:
    assert old in LOOP
    assert reason in refuse(NAME, LOOP.replace(old, new).replace("torch, io", "os, torch"))


@pytest.mark.parametrize(
    ("state", "is_refused"),
    [
        ('{"model": model.state_dict(), "epoch": epoch, "args": args}', False),
        ("model.module.state_dict()", False),
        ("model", True),
        ('{"model": model}', True),
    ],
)
def test_a_model_of_several_ranks_is_not_copied_as_a_whole(
    apply: Callable[..., str], refuse: Callable[..., str], state: str, is_refused: bool
) -> None:
    program = (
        "import torch\nfrom torch.nn.parallel import DistributedDataParallel as DDP\n"
        f"for epoch in range(9):\n    torch.save({state}, path)  # here\n"
    )
    if is_refused:
        assert "cannot be copied" in refuse(NAME, program)
    else:
        assert "save_in_background" in apply(NAME, program)


@pytest.mark.parametrize(
    "opened",
    [
        "with open(p, 'wb') as file:\n        ",
        "file = io.BytesIO()\n    ",
        "with NamedTemporaryFile() as file:\n        file = file.name\n        ",
    ],
)
def test_an_open_file_is_refused(refuse: Callable[..., str], opened: str) -> None:
    program = f"import io, torch\nfor step in range(9):\n    {opened}torch.save(state, file)  # here\n"
    assert "not the path" in refuse(NAME, program)


def test_what_gets_the_path_waits_for_the_file(apply: Callable[..., str]) -> None:
    """The function may be one of another file, which reads what was saved."""
    program = """
    import torch
    for step in range(9):
        model_path = f"{folder}/{step}.pt"
        torch.save(model.state_dict(), model_path)  # here
        print(model_path)
        score = evaluate(model_path, step)
        score = other(step)
    """
    lines = apply(NAME, program).splitlines()
    assert lines[-1] == "+    wait_for_saves()" and lines.count("+    wait_for_saves()") == 2


@pytest.mark.parametrize("model", ["model.state_dict()", "model"])
def test_a_state_that_a_function_gets_is_that_of_its_only_call(
    apply: Callable[..., str], refuse: Callable[..., str], model: str
) -> None:
    program = f"""
    import shutil
    import torch
    from torch.nn.parallel import DistributedDataParallel

    def main():
        for epoch in range(args.start, args.epochs):
            save_checkpoint({{"epoch": epoch + 1, "arch": args.arch, "model": {model}}}, is_best)

    def save_checkpoint(state, is_best, filename="last.pt"):
        torch.save(state, filename)  # here
        if is_best:
            shutil.copyfile(filename, "best.pt")
    """
    if model == "model":
        assert "cannot be copied" in refuse(NAME, program)
    else:
        assert '+        in_background(shutil.copyfile, filename, "best.pt")' in apply(NAME, program)


PROGRAM = """
import os
import sys
import tempfile

import torch

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1))
model[2].weight = torch.nn.Parameter(model[0].weight[:1].detach())
optimizer = torch.optim.Adam(model.parameters())
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2)


def save(step, path):
    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}
    state["scheduler"], state["again"], state["rng"] = scheduler.state_dict(), state["model"], torch.get_rng_state()
    torch.save(state, path + ".part")  # here
    os.replace(path + ".part", path)


def main(folder):
    for step in range(6):
        model(torch.randn(8, 64)).square().mean().backward()
        optimizer.step()
        scheduler.step()
        save(step, os.path.join(folder, f"{step}.pt"))
        save(step, os.path.join(folder, "last.pt"))


with tempfile.TemporaryDirectory(dir=sys.argv[1]) as scratch:
    main(scratch)
main(sys.argv[1])
print(len(os.listdir(sys.argv[1])))
"""


@pytest.mark.torch
def test_the_files_have_the_same_bytes(tmp_path: Path) -> None:
    from perfwrap.edits import edit
    from perfwrap.edits.outcome import Edited, Target

    line = PROGRAM.splitlines().index('    torch.save(state, path + ".part")  # here') + 1
    edited = edit(NAME, PROGRAM, Target(line))
    assert isinstance(edited, Edited)
    assert edited.text.count("    wait_for_saves()\n") == 2
    assert _run(PROGRAM, tmp_path / "old") == _run(edited.text, tmp_path / "new")
    old, new = (
        {path.name: path.read_bytes() for path in (tmp_path / name).iterdir()} for name in ("old", "new")
    )
    assert len(old) == 7 and old == new


@pytest.mark.torch
def test_a_write_that_fails_is_shown(tmp_path: Path) -> None:
    from perfwrap.edits import edit
    from perfwrap.edits.outcome import Edited, Target

    program = textwrap.dedent("""
        import torch
        for step in range(3):
            torch.save({"step": step}, "/nonexistent/a.pt")  # here
            print(step)
    """).lstrip()
    edited = edit(NAME, program, Target(3))
    assert isinstance(edited, Edited)
    done = subprocess.run([sys.executable, "-c", edited.text], capture_output=True, text=True, timeout=120)
    # The next save raises what the first one failed with.
    assert done.returncode == 1 and done.stdout == "0\n" and "nonexistent" in done.stderr


@pytest.mark.torch
def test_a_forked_child_writes_with_a_thread_of_its_own(tmp_path: Path) -> None:
    from perfwrap.edits import edit
    from perfwrap.edits.outcome import Edited, Target

    program = textwrap.dedent("""
        import os, sys
        import torch
        def save(name):
            torch.save({"name": name}, os.path.join(sys.argv[1], name))  # here
        for name in ("a", "b"):
            save(name)
        child = os.fork()
        save("child" if not child else "parent")
        if not child:
            getattr(sys.modules["__main__"], "wait_for_" + "saves")()
            os._exit(0)
        print(os.waitpid(child, 0)[1])
    """).lstrip()
    edited = edit(NAME, program, Target(4))
    assert isinstance(edited, Edited)
    assert _run(edited.text, tmp_path / "new") == "0\n"
    assert {path.name for path in (tmp_path / "new").iterdir()} == {"a", "b", "child", "parent"}


def _run(program: str, folder: Path) -> str:
    """Return what a program prints that writes into a folder."""
    folder.mkdir()
    done = subprocess.run(
        [sys.executable, "-c", program, folder],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "PYTHONHASHSEED": "0"},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
