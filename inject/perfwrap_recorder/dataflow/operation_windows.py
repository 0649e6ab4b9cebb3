"""Opens and closes the dataflow windows of ``perfwrap inspect``, and writes them.

There are two windows of three steps each, at least ``GAP_STEPS`` steps apart, when step times are steady. One opens and
closes at the end of a step: behind an optimizer, outside of backward and of inference mode, with no other dispatch mode
on the stack. It closes early before a fork, if it takes too long, and on an error; then it is tried again a few times
(``window_plan.py``). Where the mode cannot leave the stack at once, it passes everything through until it can.

There is no window, and a fact says why, where the mode would change the program or not see its operations: other
dispatch modes, profilers, ``torch.compile``, TorchScript, CUDA graphs, FSDP, functorch's transforms around the step,
inference mode around it, several threads that run models, one that is not the main thread, and more
(``window_obstacles.py``, ``asides.py``).

While any mode is on the stack, PyTorch computes a few derivatives by other formulas, whose results differ in their last
bits (``mode_dependent.py``). A window in which such an operation runs closes before backward begins.

A window is a file, ``tools/operations-<host>-<pid>-<number>.json``; ``sources/dataflow`` reads it. Records of coverage,
``dataflow``, say when windows were open, or why there is none.
"""

from __future__ import annotations

import atexit
import os
import sys
from _thread import get_ident

from perfwrap_recorder import guard, on_import, roles
from perfwrap_recorder.clock import now
from perfwrap_recorder.dataflow import (
    asides,
    mode_dependent,
    operation_mode,
    unseen_reads,
    watched_operations,
    window_obstacles,
    window_plan,
)
from perfwrap_recorder.gpu import devices
from perfwrap_recorder.instrumenting import instrument
from perfwrap_recorder.journal import journal, step_ends, switching
from perfwrap_recorder.journal_format import BACKWARD, COVERAGE, FORWARD, OPTIMIZER, PERFWRAP
from perfwrap_recorder.probes.loop import optimizer as optimizers

FORMAT = 1
COMPUTING = FORWARD, BACKWARD, OPTIMIZER

WHAT = "dataflow"
"""The name of the records of coverage."""

STEPS = 3
"""Steps of a window: the first shows what is old, the second is judged, the third shows what is still used."""
WINDOWS = 2
MAX_NESTED_PASSES = 30
"""Backward passes inside of each other in a window: at the 60th PyTorch goes on in another thread, and fails."""
_plan = None


def prepare():
    """Get ready, before torch is imported."""
    on_import.after("torch", guard.protect("dataflow", _install))


def is_over():
    """Return whether there will be no further window in this process."""
    return _plan is None or _plan.is_over


def _install(torch):
    global _plan
    _plan = window_plan.Plan()
    reason = window_obstacles.find_lack(torch)
    if reason:
        _end(reason)
        return
    backward, profiler = (
        guard.protect("dataflow_" + each.__name__[1:], each) for each in (_backward_begins, _profiler_begins)
    )
    if not (
        mode_dependent.watch_backward(torch, backward) and mode_dependent.watch_profilers(torch, profiler)
    ):
        _end("this version of PyTorch lacks what it needs")
        return
    if not window_obstacles.is_ignored_by_compiler(torch):
        begins = guard.protect("dataflow_compile_begins", _compile_begins)
        instrument.instrument(torch, torch.compile, begins, _pass)
        begins = guard.protect("dataflow_inference_begins", _inference_begins)
        instrument.instrument(torch, torch.inference_mode.__enter__, begins, _pass)
    if hasattr(torch.utils, "swap_tensors"):
        begins = guard.protect("dataflow_swap_begins", _swap_begins)
        instrument.instrument(torch, torch.utils.swap_tensors, begins, _pass)
    unseen_reads.prepare(torch)
    step_ends.watch("dataflow", lambda moment, is_step: _step_ended(torch, moment, is_step))
    os.register_at_fork(before=guard.protect("dataflow", _before_fork))
    journal.after_fork.add(guard.protect("dataflow", _in_child))
    atexit.register(guard.protect("dataflow", _end_with_program))


def _step_ended(torch, moment, is_step):
    """Open a window, or close it, at the end of a step; detail always goes on."""
    plan = _plan
    if plan is None:
        return True
    if plan.kind != journal.step_kind():
        _begin_again(torch, plan)
    if not plan.is_over and journal.ended_kind in COMPUTING:
        plan.thread = plan.thread or get_ident()
        if plan.thread != get_ident():
            _end_for_threads(plan)
            return True
    if plan.is_open:
        if get_ident() == plan.watched.thread:
            guard.run("dataflow_step", _go_on, torch, plan, moment, is_step)
            if "dataflow_step" in guard.failed and plan.is_open:
                _give_up(torch, plan, "perfwrap's own code failed: %s" % guard.failed["dataflow_step"])
    elif is_step and not plan.is_over and torch._C._current_graph_task_id() == -1:
        plan.learn(moment)
        if plan.is_due(journal.count_steps(), moment, has_others(torch)):
            reason = window_obstacles.find_reason(torch)
            if reason:
                _retry(plan, reason)
            else:
                _open(torch, plan)
    return True


def _end_for_threads(plan):
    """Have no window: what one thread does to the tensors of the other is not seen."""
    why = "several threads run models"
    if plan.is_open:
        plan.tries_left = 0
        plan.watched.give_up(why)  # its own thread closes it
    else:
        _end(why)


def _begin_again(torch, plan):
    """Plan two windows anew: steps end at a better sign than before, such as the first step of an optimizer."""
    is_first, plan.kind = not plan.kind, journal.step_kind()
    if is_first:
        return
    if plan.is_open and get_ident() == plan.watched.thread:
        plan.tries_left += 1
        _give_up(torch, plan, "steps end at another place now")
    if plan.written >= WINDOWS:
        plan.is_over = False
    plan.written, plan.moments, plan.next_at, plan.thread = 0, [], window_plan.FIRST_STEPS, 0


def _go_on(torch, plan, moment, is_step):
    """Note the end of a step of a window, and close the window after its last one."""
    watched = plan.watched
    if not watched.is_on:
        _give_up(torch, plan, watched.why)
        return
    if not is_step or torch._C._current_graph_task_id() != -1:
        return
    watched.step_ended(moment, _ids_of_parameters())
    reason = window_obstacles.find_reason(torch, plan.mode)
    if reason:
        _give_up(torch, plan, reason)
    elif len(watched.ends) >= STEPS:
        _close(torch, plan)


def _backward_begins():
    """Close the window if an operation has run whose derivative depends on whether there is a mode."""
    plan = _plan
    if plan is None or not plan.is_open or get_ident() != plan.watched.thread:
        return
    found = plan.watched.mode_dependent
    if found:
        plan.tries_left = 0
        plan.watched.give_up(
            "PyTorch computes the derivative of %s in another way while it is watched" % found
        )
    elif mode_dependent.nested_passes(sys.modules["torch"]) >= MAX_NESTED_PASSES:
        plan.watched.give_up("backward passes run inside of each other")
    if not plan.watched.is_on:
        _give_up(sys.modules["torch"], plan, plan.watched.why)


def _swap_begins():
    # PyTorch swaps no tensors to which there are weak references.
    _step_aside("the program swaps tensors")


def _inference_begins():
    # In old versions ``.data`` of its tensors raises an error under a mode.
    _step_aside("a step uses inference mode")


def _script_begins(kind):
    _step_aside("TorchScript code runs, whose errors have no text while it is watched")


def _class_begins(kind):
    if window_obstacles.is_constructed(sys.modules["torch"], kind):
        _step_aside(window_obstacles.CONSTRUCTED)


def _convert_begins(kind):
    _step_aside("the program converts tensors to other classes")


def _step_aside(why):
    """Close the window for good."""
    plan = _plan
    if plan is not None and plan.is_open and get_ident() == plan.watched.thread:
        plan.tries_left = 0
        _give_up(sys.modules["torch"], plan, why)


def has_others(torch):
    """Return whether other ranks train, too."""
    distributed = torch.distributed
    if distributed.is_available() and distributed.is_initialized():
        return distributed.get_world_size() > 1
    return (roles.find_ranks(os.environ)[2] or "1").strip() != "1"


def _ids_of_parameters():
    """Return the ids of all parameters of optimizers that have stepped."""
    found = set()
    for known in list(optimizers.numbered()):
        found.update(id(each) for each in optimizers.discarded_gradients.parameters_of(known))
    return found


def _profiler_begins():
    plan = _plan
    if plan is not None and plan.is_open and get_ident() == plan.watched.thread:
        _give_up(sys.modules["torch"], plan, "a profiler is active")


def _compile_begins():
    """Note that the program asks for a compiled function, in a version of PyTorch that does not ignore the mode."""
    window_obstacles.has_compiled.append(True)
    plan = _plan
    if plan is not None and plan.is_open and get_ident() == plan.watched.thread:
        _give_up(sys.modules["torch"], plan, "torch.compile is in use")


def _pass(state, result):
    """Never called: what begins returns no state."""


def _open(torch, plan):
    began = now()
    watched = plan.watched = watched_operations.Watched(torch, plan.durations())
    plan.mode, plan.why = operation_mode.make(torch, watched), ""
    unseen_reads.start(watched.read)
    begins = [
        guard.protect("dataflow_" + each.__name__[1:], each)
        for each in (_script_begins, _class_begins, _convert_begins)
    ]
    asides.start(torch, *begins[:2], None if window_obstacles.is_ignored_by_compiler(torch) else begins[2])
    _note("window start", began)
    watched.opened = watched.last = now()
    operation_mode.push(torch, plan.mode)


def _close(torch, plan):
    """Close the window and write its file."""
    watched, last = plan.watched, journal.count_steps()
    watched.is_on = False
    began = now()
    if not operation_mode.pop(torch, plan.mode):
        _give_up(torch, plan, "another dispatch mode is active")
        return
    _stop_watching()
    name = guard.run("dataflow_file", _write, torch, plan, watched)
    watched.forget()
    _forget(plan)
    _note("window end", began)
    if not name:
        why = "its file could not be written"
        _cover(watched.opened, plan.closed, "window given up: " + why)
        _retry(plan, why)
        return
    _cover(watched.opened, plan.closed, "operations of steps %d to %d: %s" % (last - STEPS + 1, last, name))
    plan.written += 1
    plan.next_at = journal.count_steps() + window_plan.GAP_STEPS
    if plan.written >= WINDOWS:
        _end("")


def _give_up(torch, plan, why):
    """Watch nothing any more, and close the window as soon as the mode can leave the stack."""
    watched = plan.watched
    if not plan.why:
        plan.why = why
        _stop_watching()
        watched.forget()
    if operation_mode.pop(torch, plan.mode):
        _forget(plan)
        _cover(watched.opened, plan.closed, "window given up: " + plan.why)
        _retry(plan, plan.why)


def _stop_watching():
    unseen_reads.stop()
    asides.stop()


def _forget(plan):
    plan.mode = plan.watched = None
    plan.moments, plan.closed = [], now()


def _retry(plan, reason):
    plan.tries_left -= 1
    plan.next_at = journal.count_steps() + window_plan.BARE_STEPS
    if plan.tries_left <= 0:
        _end(reason)


def _end(reason):
    """Write why there is no further window."""
    _plan.is_over = True
    if reason:
        moment = now()
        _cover(moment, moment + 1, "no window: " + reason)


def _cover(began, ended, note):
    """Write when steps were not as usual."""
    journal.put(began, ended - began, journal.text(note), journal.text(WHAT), 0, COVERAGE)
    switching.exclude(ended - began)


def _note(name, began):
    journal.record(began, now() - began, 0, journal.text(name), PERFWRAP)


def _write(torch, plan, watched):
    """Write the file of a window, and return its name, relative to the run folder."""
    values = watched.values
    sums = watched.sums.read() if watched.sums.waiting else {}
    document = {
        "format": FORMAT,
        "torch": str(torch.__version__),
        "thread": journal.threads.get(get_ident(), 0),
        "opened": watched.opened,
        "ends": watched.ends,
        "first_operations": watched.first_operations,
        "bare": watched.bare_ns,
        "own": watched.own_ns,
        "functions": watched.functions,
        "geometries": values.geometries,
        "storages": values.storages,
        "value_storage": values.storage,
        "value_operation": values.op,
        "value_sums": {str(value): sums.get(found, found) for value, found in values.sums.items()},
        "stacks": watched.stacks.rows,
        "modules": watched.stacks.paths,
        "operations": watched.operations,
        "gpu": _read_events(watched),
        "alive": values.alive(),
        "unowned": sorted(watched.unowned),
        "sorts": {str(operation): dimension for operation, dimension in watched.sorts.items()},
        "nodes": {str(node): operation for node, operation in watched.nodes.items()},
    }
    settings = journal.settings
    folder = settings.run_dir + "/tools"
    os.makedirs(folder, 0o700, exist_ok=True)
    name = "%s/operations-%s-%d-%d.json" % (folder, settings.host, os.getpid(), plan.written)
    descriptor = os.open(name + ".part", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8", errors="surrogatepass") as file:
        # torch has imported it, so this is no new import.
        sys.modules["json"].dump(document, file, separators=(",", ":"))
    os.rename(name + ".part", name)
    return "tools/" + name.rpartition("/")[2]


def _read_events(watched):
    """Return (operation, duration in ns) of operations on a GPU; this waits for the GPU."""
    if not watched.events:
        return []
    devices.current.synchronize()
    return [(number, round(1e6 * before.elapsed_time(after))) for number, before, after in watched.events]


def _before_fork():
    plan = _plan
    if plan is not None and plan.is_open and get_ident() == plan.watched.thread:
        _give_up(sys.modules["torch"], plan, "the program forked")


def _in_child():
    """Have no window in the child of a fork; where the mode could not leave the stack before, it stays."""
    global _plan
    plan, _plan = _plan, None
    _stop_watching()
    if plan is not None and plan.is_open:
        plan.watched.is_on = False  # another thread may have held its lock


def _end_with_program():
    plan = _plan
    if plan is None or plan.is_over:
        return
    if plan.is_open and get_ident() == plan.watched.thread:
        plan.tries_left = 0
        _give_up(sys.modules["torch"], plan, "the program ended")
    elif plan.kind:
        _end("the program ended after too few steps")
