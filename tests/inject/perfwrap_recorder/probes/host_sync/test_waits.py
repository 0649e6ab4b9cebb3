"""Explicit waits for a GPU are syncs with the user's line; without a GPU torch's errors stay as they are."""

from __future__ import annotations

from ..away import AWAY, needs_away


@needs_away
def test_a_wait_for_the_device_is_a_sync_with_the_users_line(train) -> None:
    done = train(
        AWAY
        + """
def wait():
    torch.accelerator.synchronize(0)
wait()
"""
    )
    (found,) = done.journal.of("SYNC")
    assert (found.label, found.value, found.line[2]) == ("torch.accelerator.synchronize", 1, "wait")


def test_without_a_gpu_errors_are_those_of_torch_and_leave_no_trace(train, run_bare) -> None:
    program = """
for call in (lambda: torch.cuda.synchronize(), lambda: torch.cuda.Event(), lambda: torch.cuda.Stream(),
             lambda: torch.cuda.Event.synchronize(None), lambda: torch.xpu.synchronize()):
    try:
        call()
    except BaseException as error:
        print(type(error).__name__, str(error).splitlines()[0], error.__context__, error.__cause__)
"""
    done = train(program)
    bare = "import torch\n" + program
    assert done.stdout == run_bare(bare)
    assert not done.journal.of("SYNC")
