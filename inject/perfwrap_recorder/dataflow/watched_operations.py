"""What one dataflow window has seen: a row for each operation, with what it read, wrote and took.

No tensor is held: rows have the numbers of values, which ``tensor_values`` gives.
"""

from __future__ import annotations

import threading
import weakref
from _thread import get_ident
from itertools import count

from perfwrap_recorder.clock import now
from perfwrap_recorder.dataflow import mode_dependent, tensor_values
from perfwrap_recorder.dataflow import operation_flags as flags
from perfwrap_recorder.dataflow.operation_kinds import NORMS, RUNNING, TRAINS, Kind
from perfwrap_recorder.dataflow.operation_stacks import Stacks
from perfwrap_recorder.dataflow.tensor_values import TensorValues
from perfwrap_recorder.dataflow.value_sums import UNKNOWN, ValueSums

MAX_OPERATIONS = 300_000
MAX_NS = 60_000_000_000
"""A window that has more operations, or takes longer, is given up."""

MAX_LEAVES = 100_000
ACCUMULATES = 1 << 62
"""The sequence numbers of nodes that accumulate gradients are larger."""

NUMBERS = int, float
MINUS_ONE = "-1"
"""Stands for -1, whose hash is that of -2."""

_unhashed = count().__next__


class Watched:
    """What one window has seen; ``operations`` are its rows, in the order of ``ROW``."""

    ROW = (
        *("function", "inside", "outside", "flags", "reads", "scalars", "writes"),
        *("start", "duration", "gap", "node", "backward", "nth", "module"),
    )

    def __init__(self, torch, bare_ns):
        self.torch = torch
        self.is_on, self.why = True, ""
        self.bare_ns = bare_ns
        """Durations of the steps before the window."""
        self.thread = get_ident()
        self.stacks, self.values, self.sums = Stacks(torch), TensorValues(torch), ValueSums(torch)
        self.operations, self.functions, self.kinds = [], [], {}
        self.ends, self.first_operations = [], [0]
        self.nodes = {}
        """Sequence number of a node -> the operation that made it."""
        self.sorts = {}
        """Operation that sorts -> the dimension along which it does."""
        self.unowned = set()
        """Storages of gradients whose parameters are in no optimizer."""
        self.events = []
        """Of operations on a GPU: (operation, event before, event after)."""
        self.mode_dependent = ""
        """An operation that was seen, whose derivative depends on the mode."""
        self.own_ns = 0
        self.opened = self.last = now()
        # Of the backward threads of devices. A signal handler of the program may run operations inside of it.
        self._lock = threading.RLock()
        self._writer = 0
        """The thread that writes a row."""
        self._is_whole = True
        self._no_function = (
            getattr(torch._C, "DisableTorchFunction", None) or torch._C.DisableTorchFunctionSubclass
        )
        self._node = getattr(torch._C, "_current_autograd_node", None) or (lambda: None)
        self._task = torch._C._current_graph_task_id
        self._sequence = torch._C._autograd._get_sequence_nr
        self._leaves = {}
        self._counts, self._seen, self._before = {}, {}, {}
        self._plain = torch.Tensor, torch.nn.Parameter
        core = tensor_values.core_of(torch)  # not attributes: a subclass may define them in its own way
        self._is_leaf, self._gradient = core.is_leaf.__get__, core.grad.__get__
        self._requires_grad = core.requires_grad.__get__
        self._count, self._size = core.numel, core.element_size

    def note(self, function, arguments, options, result, times, frame):
        """Write the row of one operation; ``times``: when the handler began, when the operation began and ended."""
        entered, began, ended = times
        with self._lock, self._no_function():
            if not self.is_on:
                return
            number = len(self.operations)
            if number >= MAX_OPERATIONS or ended - self.opened > MAX_NS:
                self.give_up("the steps are too long")
                return
            if not self._is_whole:
                self.give_up("a signal handler of the program ended the writing of a row")
                return
            self._is_whole, self._writer = False, get_ident()
            row = self._row(number, function, arguments, options, result, frame)
            self.operations.append(
                (*row[:7], entered - self.opened, ended - began, entered - self.last, *row[7:])
            )
            self.values.prune()
            self._is_whole, self._writer = True, 0
        left = now()
        self.own_ns += left - entered - (ended - began)
        self.last = left

    def give_up(self, why):
        """Watch nothing any more."""
        self.is_on, self.why = False, self.why or why

    def read(self, tensor, name, frame):
        """Write that the program took the memory of a tensor."""
        if not self.is_on or get_ident() != self.thread or type(tensor) not in self._plain:
            return
        if self._writer == self.thread:  # in a finalizer or a signal handler, while this thread writes a row
            self.give_up("the program read a tensor while a row was written")
            return
        with self._lock, self._no_function():
            found = self.values.find(tensor)
            if found is None:
                return
            inside, outside, bits, module = self.stacks.look(frame)
            reads = [found[0].value, self.values.geometry(tensor)]
            bits |= flags.HOST | flags.READ
            kind = self._number_of_read(name)
            row = kind, inside, outside, bits, reads, 0, [], now() - self.opened, 0, 0, -1, -1, -1, module
            self.operations.append(row)

    def step_ended(self, moment, parameters):
        """Begin the next step; ``parameters`` are the ids of all parameters of optimizers."""
        self._note_unowned(parameters)
        self.ends.append(moment - self.opened)
        self.first_operations.append(len(self.operations))
        self.values.step += 1
        self._before, self._seen, self._counts = self._seen, {}, {}

    def forget(self):
        """Release all references to tensors, modules and code, and all rows; watch nothing any more."""
        self.is_on = False
        if self._writer == get_ident():
            return  # in a finalizer or a signal handler, while this thread writes a row
        with self._lock:
            self.values.forget()
            self._leaves, self.events, self.operations, self.nodes, self.kinds = {}, [], [], {}, {}
            self.sorts = {}
            self._counts, self._seen, self._before = {}, {}, {}
            self.stacks = self.sums = None

    def _row(self, number, function, arguments, options, result, frame):
        kind = self.kinds.get(function) or self._learn(function)
        task = self._task()
        bits, node = self._phase(task)
        inside, outside, found, module = self.stacks.look(frame)
        bits |= found
        if kind.is_random(arguments, options):
            bits |= flags.RANDOM
        if kind.name == "sort":
            self.sorts[number] = _sorted_dimension(arguments, options)
        inputs, writes, scalars = self._arguments(kind, arguments, options)
        scalar = _hashed(scalars)
        reads, fresh, tracked, complete = self._reads(inputs)
        if tracked and not bits & (flags.NO_GRAD | flags.BACKWARD):
            bits |= flags.TRACKED
        without = bits & flags.NO_GRAD
        if kind.is_mode_dependent and mode_dependent.is_one(
            kind.name,
            arguments,
            tracked and not without,
            without and mode_dependent.may_run_again(frame),
        ):
            self.mode_dependent = self.mode_dependent or kind.name
        nth, key = -1, None
        if task == -1:
            place = inside, kind.number
            nth = self._counts.get(place, 0)
            self._counts[place] = nth + 1
            key = (*place, nth)
        stable, converted = self._is_stable(key, bits, reads, fresh, scalar) if complete else (False, False)
        bits |= (flags.STABLE if stable else 0) | (flags.CONVERT if converted else 0)
        written, reads, bits = self._writes(number, kind, bits, stable, writes, result, reads, bool(inputs))
        if bits & flags.TRACKED:
            made = self._sequence() - 1
            if self.nodes.setdefault(made, number) == number:
                node = made
        elif tracked and bits & flags.BACKWARD and not without:
            # create_graph=True: a later pass visits its node.
            self.nodes.setdefault(self._sequence() - 1, number)
        return kind.number, inside, outside, bits, reads, scalar, written, node, task, nth, module

    def _learn(self, function):
        kind = self.kinds[function] = Kind(self.torch, function, len(self.functions))
        self.functions.append(kind.row)
        return kind

    def _number_of_read(self, name):
        number = self.kinds.get(name)
        if number is None:
            number = self.kinds[name] = len(self.functions)
            self.functions.append((name, name, "read", False, False, False, False))
        return number

    def _phase(self, task):
        """Return flags and the number of the node whose backward runs, -1 without one."""
        bits, number = 0, -1
        if task != -1:
            bits |= flags.BACKWARD
            node = self._node()
            if node is not None:
                number = node._sequence_nr()
                if number > ACCUMULATES:
                    bits |= flags.ACCUMULATE
                    number = -1
        if get_ident() != self.thread:
            bits |= flags.OTHER_THREAD
        if not self.torch.is_grad_enabled():
            bits |= flags.NO_GRAD
        return bits, number

    def _arguments(self, kind, arguments, options):
        """Return the tensors that an operation reads, those that it writes, and its other arguments."""
        inputs, writes, scalars, written, unread = [], [], [], kind.written, ()
        if kind.name in NORMS and len(arguments) > TRAINS and arguments[TRAINS]:
            written = unread = RUNNING
        tensor = self.torch.Tensor
        for at, each in [*enumerate(arguments), *options.items()]:
            if isinstance(each, tensor):
                if at not in unread:
                    inputs.append(each)
                if at in written:
                    writes.append(each)
            elif type(each) in (list, tuple) and any(isinstance(one, tensor) for one in each):
                inputs += [one for one in each if isinstance(one, tensor)]
                scalars.append(tuple(None if isinstance(one, tensor) else _scalar(one) for one in each))
                if at in written:
                    writes += [one for one in each if isinstance(one, tensor)]
            else:
                scalars.append((at, _scalar(each)))
        return inputs, writes, scalars

    def _reads(self, inputs):
        """Return (value and geometry of each, the new ones, whether one needs a gradient, whether all are known)."""
        reads, fresh, tracked, complete = [], [], False, True
        values = self.values
        for each in inputs:
            for part in values.parts(each):
                found = values.find(part)
                if found is None:
                    complete = False
                    continue
                held, is_new, _ = found
                if is_new:
                    fresh.append((held, part))
                reads += held.value, values.geometry(part)
            if self._requires_grad(each):
                tracked = True
                if self._is_leaf(each) and id(each) not in self._leaves and len(self._leaves) < MAX_LEAVES:
                    self._leaves[id(each)] = weakref.ref(each)
        return reads, fresh, tracked, complete

    def _is_stable(self, key, bits, reads, fresh, scalar):
        """Return whether the operation follows from what is the same in each step, and whether it reads conversions."""
        values, converted = self.values, False
        stable = not bits & (flags.BACKWARD | flags.OPTIMIZER | flags.DATA | flags.RANDOM)
        if key is None:
            return False, False
        total = 0
        if fresh and not bits & (flags.OPTIMIZER | flags.DATA):
            sums = tuple(self.sums.of_tensor(part) for _, part in fresh)
            total = UNKNOWN if UNKNOWN in sums else hash(sums)
        then = self._before.get(key)
        if then is None or then[0] != scalar:
            stable = False
        if fresh:
            # Not seen before this step: converted, or of a batch. It is stable if it was the same in the last step.
            converted = then is not None and then[1] == total and total != UNKNOWN and not bits & flags.DATA
            for held, _ in fresh:
                values.stable[held.value] = converted
        self._seen[key] = scalar, total
        return stable and all(self._is_value_stable(value) for value in reads[::2]), converted

    def _is_value_stable(self, value):
        values = self.values
        made = values.op[value]
        if made == -1:
            return values.stable[value] or values.storages[values.storage[value]][0] < values.step
        return made >= self.first_operations[values.step] and values.stable[value]

    def _writes(self, number, kind, bits, stable, writes, result, reads, has_inputs):
        """Return what an operation wrote, (value, geometry, how) flat, and its reads and flags."""
        values, written, done = self.values, [], set()
        is_summed = stable and values.step > 0
        for each in writes:
            found = values.find(each)
            if found is None:
                continue
            held = found[0]
            done.add(held.number)
            if kind.overwrites and len(writes) == 1 and self._count(each) * self._size(each) >= held.bytes:
                old = held.value  # not read
                reads = [
                    one for at in range(0, len(reads), 2) if reads[at] != old for one in reads[at : at + 2]
                ]
            held.value = values.add(held.number, number, stable)
            written += held.value, values.geometry(each), flags.WRITTEN
        for each in result if type(result) in (list, tuple) else (result,):
            if not isinstance(each, self.torch.Tensor):
                if each is not None and has_inputs:
                    bits |= flags.HOST
                continue
            for part in values.parts(each):
                found = values.find(part)
                if found is None or found[0].number in done:
                    continue
                held, is_new, _ = found
                if is_new:
                    values.op[held.value] = number
                    values.stable[held.value] = stable and not kind.is_empty
                    if is_summed and not kind.is_empty:
                        values.sums[held.value] = self.sums.of_tensor(part)
                written += held.value, values.geometry(part), flags.NEW if is_new else flags.VIEW
        if is_summed:
            for each in writes:
                found = values.find(each)
                if found is not None:
                    values.sums[found[0].value] = self.sums.of_storage(found[2], found[0].bytes)
        return written, reads, bits

    def _note_unowned(self, parameters):
        with self._no_function():
            for number, reference in list(self._leaves.items()):
                leaf = reference()
                gradient = None if leaf is None or number in parameters else self._gradient(leaf)
                if gradient is None:
                    continue
                found = self.values.find_number(gradient)
                if found is not None:
                    self.unowned.add(found)


def _sorted_dimension(arguments, options):
    """Return the argument ``dim`` of a call of sort, -1 by default."""
    found = options.get("dim", arguments[1] if len(arguments) > 1 else -1)
    return found if type(found) is int else -1


def _scalar(value):
    """Return what stands for an argument that is not a tensor."""
    kind = type(value)
    if kind is list or kind is tuple:
        return tuple(map(_scalar, value))
    return MINUS_ONE if kind in NUMBERS and value == -1 else value


def _hashed(scalars):
    """Return a hash of the arguments that are not tensors; one of its own for those that have none."""
    try:
        return hash(tuple(scalars))
    except TypeError:
        return -1 - _unhashed()  # no text of them: that of a tensor is made by operations
