"""Opens and closes the dataflow windows of ``perfwrap inspect``, and writes them.

There are two windows of three steps each, at least ``GAP_STEPS`` steps apart, when step times are steady. One opens and
closes at the end of a step: behind an optimizer, outside of backward, with no other dispatch mode on the stack. It
closes early before a fork, if it takes too long, and on an error; then it is tried again, up to ``MAX_TRIES`` times.

There is no window, and a fact says why, where the mode would change the program or not see its operations: other
dispatch modes, ``torch.compile``, CUDA graphs, FSDP, functorch's transforms around the step, a training thread that is
not the main thread, and versions of PyTorch whose modes Dynamo does not ignore.

A window is a file, ``tools/operations-<host>-<pid>-<number>.json``; ``sources/dataflow`` reads it. Records of coverage,
``dataflow``, say when windows were open, or why there is none.
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
from _thread import get_ident

from perfwrap_recorder import guard, on_import, roles, static_access
from perfwrap_recorder.clock import now
from perfwrap_recorder.dataflow import operation_mode, unseen_reads
from perfwrap_recorder.journal import journal, step_ends, switching
from perfwrap_recorder.journal_format import COVERAGE, PERFWRAP
from perfwrap_recorder.probes.loop import optimizer as optimizers
from perfwrap_recorder.program import seen_models

FORMAT = 1

WHAT = "dataflow"
"""The name of the records of coverage."""

STEPS = 3
"""Steps of a window: the first shows what is old, the second is judged, the third shows what is still used."""
WINDOWS = 2
FIRST_STEPS, MAX_WAITED_STEPS = 12, 20
"""Steps before the first window, and how many more are waited for until step times are steady."""
RANKS_FIRST_STEPS = 20
"""The same for several ranks, which must agree without communication."""
GAP_STEPS = 20
"""Steps between the windows."""
LONG_NS = 20_000_000_000
"""After this time the second window opens, though there were fewer steps than that."""
LAST_STEPS, STEADY_FACTOR = 5, 1.6
"""Steps are steady if the last one took at most STEADY_FACTOR times the median of the last LAST_STEPS."""
BARE_STEPS = 10
"""Steps before a window whose durations are written."""
MAX_TRIES = 3
SHARDED = "FullyShardedDataParallel", "FSDPModule"

_plan = None


class Plan:
    """The windows of this process."""

    def __init__(self):
        self.tries_left = MAX_TRIES
        self.written = 0
        self.moments = []
        """When the last steps ended, without those of windows."""
        self.next_at = FIRST_STEPS
        self.closed = 0
        self.watched = self.mode = None
        self.is_over = False

    @property
    def is_open(self):
        """Whether a window is open."""
        return self.mode is not None

    def learn(self, moment):
        """Note the end of a step outside of windows."""
        self.moments = [*self.moments[-BARE_STEPS:], moment]

    def durations(self):
        """Return the durations of the last steps."""
        return [after - before for before, after in zip(self.moments, self.moments[1:])]  # noqa: B905 - Python 3.8

    def is_due(self, count, moment, has_others):
        """Return whether the next step is the first of a window; the ranks of a job all take the same steps."""
        if has_others:
            return count >= max(self.next_at, RANKS_FIRST_STEPS)
        last = self.durations()[-LAST_STEPS:]
        is_late = self.written and moment - self.closed > LONG_NS and len(last) >= 2
        if count < self.next_at and not is_late:
            return False
        if len(last) < 2:
            return False
        return (
            last[-1] <= STEADY_FACTOR * sorted(last)[len(last) // 2]
            or count >= self.next_at + MAX_WAITED_STEPS
        )


def prepare():
    """Get ready, before torch is imported."""
    on_import.after("torch", guard.protect("dataflow", _install))


def is_over():
    """Return whether there will be no further window in this process."""
    return _plan is None or _plan.is_over


def _install(torch):
    global _plan
    _plan = Plan()
    reason = _find_lack(torch)
    if reason:
        _end(reason)
        return
    unseen_reads.install(torch)
    step_ends.watch("dataflow", lambda moment, is_step: _step_ended(torch, moment, is_step))
    os.register_at_fork(before=guard.protect("dataflow", _before_fork))
    journal.after_fork.add(guard.protect("dataflow", _in_child))
    atexit.register(guard.protect("dataflow", _end_with_program))


def _find_lack(torch):
    """Return what this version of PyTorch lacks, "" if nothing."""
    base = getattr(getattr(torch.utils, "_python_dispatch", None), "TorchDispatchMode", None)
    needed = (
        "_current_graph_task_id",
        "_len_torch_dispatch_stack",
        "_get_dispatch_stack_at",
        "_DisableTorchDispatch",
    )
    if base is None or not all(hasattr(torch._C, name) for name in needed):
        return "this version of PyTorch lacks what it needs"
    if not hasattr(torch._C._autograd, "_get_sequence_nr"):
        return "this version of PyTorch lacks what it needs"
    return ""


def _step_ended(torch, moment, is_step):
    """Open a window, or close it, at the end of a step; detail always goes on."""
    plan = _plan
    if plan is None or plan.is_over or not is_step or torch._C._current_graph_task_id() != -1:
        return True
    if plan.is_open:
        if get_ident() == plan.watched.thread:
            plan.watched.step_ended(moment, _ids_of_parameters())
            if len(plan.watched.ends) >= STEPS or not plan.watched.is_on:
                _close(torch, plan)
        return True
    plan.learn(moment)
    if plan.is_due(journal.count_steps(), moment, has_others(torch)):
        reason = _find_reason(torch)
        if reason:
            _retry(plan, reason)
        else:
            _open(torch, plan)
    return True


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


def _find_reason(torch):
    """Return why there must be no window now, "" if there may."""
    if torch._C._len_torch_dispatch_stack():
        return "another dispatch mode is active"
    if threading.current_thread() is not threading.main_thread():
        return "the thread that trains is not the main thread"
    if _uses_compiler():
        return "torch.compile is in use, whose compiled regions show no operations"
    if torch.cuda.is_available() and torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing():
        return "a CUDA graph is being captured"
    if getattr(torch._C, "_functorch", None) and torch._C._functorch.peek_interpreter_stack() is not None:
        return "the training step runs inside a transform of torch.func"
    if any(kind.__name__ in SHARDED for kind in _kinds_of_modules(torch)):
        return "the model is sharded by FSDP"
    return ""


def _uses_compiler():
    frames = sys.modules.get("torch._dynamo.convert_frame")
    return frames is not None and bool(
        getattr(frames, "FRAME_COUNTER", 0) or getattr(frames, "initial_global_state", None)
    )


def _kinds_of_modules(torch):
    """Return the classes that are derived from FSDP's, as far as the program has imported it."""
    found = []
    for name in (
        "torch.distributed.fsdp.fully_sharded_data_parallel",
        "torch.distributed.fsdp._fully_shard._fully_shard",
    ):
        module = sys.modules.get(name)
        for sharded in SHARDED:
            kind = getattr(module, sharded, None)
            if kind is not None and _is_used(kind):
                found.append(kind)
    return found


def _is_used(kind):
    """Return whether a module of FSDP's class was made, or a class was derived from it, as ``fully_shard`` does."""
    if type.__subclasses__(kind):
        return True
    return any(static_access.is_kind_of(type(module), kind) for _, module in seen_models.alive())


def _open(torch, plan):
    began = now()
    plan.watched = operation_mode.Watched(torch, plan.durations())
    plan.mode = operation_mode.make(torch, plan.watched)
    unseen_reads.listener = plan.watched.read
    plan.mode.__enter__()
    _note("window start", began)
    plan.watched.opened = plan.watched.last = now()


def _is_on_top(torch, mode):
    count = torch._C._len_torch_dispatch_stack()
    return count > 0 and torch._C._get_dispatch_stack_at(count - 1) is mode


def _close(torch, plan, why=""):
    """Close the window; if another mode is above it, it passes everything through until it can be closed."""
    watched, mode = plan.watched, plan.mode
    watched.is_on = False
    if not _is_on_top(torch, mode):
        watched.why = watched.why or "another dispatch mode is active"
        return
    began = now()
    mode.__exit__(None, None, None)
    unseen_reads.listener = None
    plan.mode = plan.watched = None
    why = why or watched.why
    last = journal.count_steps()
    name = "" if why else guard.run("dataflow_file", _write, torch, plan, watched)
    watched.forget()
    plan.moments, plan.closed = [], now()
    _note("window end", began)
    if not name:
        _cover(watched.opened, plan.closed, "window given up: " + (why or "its file could not be written"))
        _retry(plan, why)
        return
    steps = last - STEPS + 1, last
    _cover(watched.opened, plan.closed, "operations of steps %d to %d: %s" % (*steps, name))
    plan.written += 1
    plan.next_at = journal.count_steps() + GAP_STEPS
    if plan.written >= WINDOWS:
        _end("")


def _retry(plan, reason):
    plan.tries_left -= 1
    plan.next_at = journal.count_steps() + BARE_STEPS
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
        "gpu": _read_events(torch, watched),
        "alive": values.alive(),
        "unowned": sorted(watched.unowned),
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


def _read_events(torch, watched):
    """Return (operation, duration in ns) of operations on a GPU; this waits for the GPU."""
    if not watched.events:
        return []
    torch.cuda.synchronize()
    return [(number, round(1e6 * before.elapsed_time(after))) for number, before, after in watched.events]


def _before_fork():
    plan = _plan
    if plan is not None and plan.is_open and get_ident() == plan.watched.thread:
        _close(sys.modules["torch"], plan, "the program forked")


def _in_child():
    global _plan
    plan, _plan = _plan, None
    unseen_reads.listener = None
    if plan is not None and plan.is_open:
        plan.watched.give_up("the program forked")
        if _is_on_top(sys.modules["torch"], plan.mode):
            plan.mode.__exit__(None, None, None)


def _end_with_program():
    plan = _plan
    if plan is None or plan.is_over:
        return
    if plan.is_open and get_ident() == plan.watched.thread:
        plan.tries_left = 0
        _close(sys.modules["torch"], plan, "the program ended")
    elif plan.moments or plan.written:
        _end("the program ended after too few steps")
