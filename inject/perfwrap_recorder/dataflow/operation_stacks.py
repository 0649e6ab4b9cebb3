"""Finds who called an operation: the program's lines, the module that ran, and torch's own phases around it.

Code objects are known by their id and kept alive, so that ids stay theirs, until the windows are written.
"""

from __future__ import annotations

from perfwrap_recorder.dataflow.operation_flags import CHECKPOINTED, DATA, OPTIMIZER, RECOMPUTE
from perfwrap_recorder.program import source_lines

MAX_FRAMES = 12
"""Frames of a stack that are kept, from the innermost one."""
MAX_MODULES = 50_000

HIDDEN, USERS, INSTALLED, ENGINE, CHECKPOINT, STEP, STEPPER, LOADER, MODULE = range(9)
"""Sorts of code. STEP is torch's wrapper around an optimizer's step, STEPPER code of torch's optimizers."""

NAMED = {
    ("autograd/graph.py", "_engine_run_backward"): ENGINE,
    ("autograd/__init__.py", "backward"): ENGINE,  # up to torch 2.2 these two call the engine
    ("autograd/__init__.py", "grad"): ENGINE,
    ("optim/optimizer.py", "wrapper"): STEP,
    ("nn/modules/module.py", "_call_impl"): MODULE,
}


class Stacks:
    """The stacks of one window: a number for each, and the rows that it stands for."""

    def __init__(self, torch):
        self._folder = torch.__file__.rpartition("/")[0] + "/"
        self._sorts = {}  # id of a code object -> (sort, code object)
        self._numbers = {}
        self.rows = []
        """Number -> ((file, line, function, whether it is an installed package's), ...), the innermost first."""
        self._modules = {}  # id of a module -> its number in paths
        self.paths = []
        """Number of a module -> its path in the model and its class."""
        self._kept = []  # modules, so that their ids stay theirs

    def look(self, frame):
        """Return (number inside of the backward engine or -1, number outside of it or -1, flags, module or -1)."""
        key, inner, flags, module = [], None, 0, -1
        sorts, users, is_closure = self._sorts, False, False
        while frame is not None:
            code = frame.f_code
            known = sorts.get(id(code))
            sort = known[0] if known else self._sort_of(frame)
            if sort:
                if sort <= INSTALLED:
                    users = True
                    if len(key) < 2 * MAX_FRAMES:
                        key.append(id(code))
                        key.append(frame.f_lineno)
                elif sort == MODULE:
                    if module < 0:
                        module = self._number_of_module(frame)
                elif sort == ENGINE:
                    if inner is None:
                        inner, key = key, []
                elif sort == CHECKPOINT:
                    flags |= RECOMPUTE
                elif sort == STEPPER:
                    is_closure = is_closure or users  # a closure that torch's optimizer calls
                elif sort == STEP:
                    flags |= 0 if is_closure else OPTIMIZER
                else:
                    flags |= DATA
            frame = frame.f_back
        if inner is None:
            if flags & RECOMPUTE:
                flags = flags & ~RECOMPUTE | CHECKPOINTED
            return self._number(key), -1, flags, module
        return self._number(inner), self._number(key), flags, module

    def _sort_of(self, frame):
        code = frame.f_code
        path = code.co_filename
        if source_lines.is_caller(code):
            sort = HIDDEN
        elif path.startswith(self._folder):
            sort = self._sort_in_torch(path[len(self._folder) :], code.co_name)
        else:
            sort = (HIDDEN, INSTALLED, USERS)[source_lines.sort_of(frame)]
        self._sorts[id(code)] = sort, code
        return sort

    def _sort_in_torch(self, path, name):
        if path == "utils/checkpoint.py":
            return CHECKPOINT
        if path.startswith("utils/data/"):
            return LOADER
        if path.startswith("optim/") and path != "optim/optimizer.py":
            return STEPPER
        return NAMED.get((path, name), HIDDEN)

    def _number(self, key):
        if not key:
            return -1
        key = tuple(key)
        found = self._numbers.get(key)
        if found is None:
            found = self._numbers[key] = len(self.rows)
            self.rows.append(
                tuple(self._row(self._sorts[key[at]], key[at + 1]) for at in range(0, len(key), 2))
            )
        return found

    def _row(self, known, line):
        sort, code = known
        name = getattr(code, "co_qualname", code.co_name)
        return source_lines.absolute(code.co_filename), line or 0, name, sort == INSTALLED

    def _number_of_module(self, frame):
        """Return the number of the module whose forward runs in this frame."""
        module = frame.f_locals.get("self")
        found = self._modules.get(id(module))
        if found is not None:
            return found
        outermost = module
        while frame is not None:  # its path begins at the outermost module that runs
            known = self._sorts.get(id(frame.f_code))
            sort = known[0] if known else self._sort_of(frame)
            if sort == MODULE:
                outermost = frame.f_locals.get("self")
            frame = frame.f_back
        self._add_modules(outermost)
        if id(module) not in self._modules:
            self._add(module, type(module).__name__)
        return self._modules.get(id(module), -1)

    def _add_modules(self, root):
        name = type(root).__name__
        waiting = [(name, root)]
        while waiting and len(self.paths) < MAX_MODULES:
            path, module = waiting.pop()
            if id(module) in self._modules:
                continue
            self._add(module, path)
            children = vars(module).get("_modules") or {}
            waiting += [
                ("%s.%s" % (path, key), child) for key, child in children.items() if child is not None
            ]

    def _add(self, module, path):
        if len(self.paths) < MAX_MODULES:
            self._modules[id(module)] = len(self.paths)
            self._kept.append(module)
            self.paths.append((path, type(module).__name__))
