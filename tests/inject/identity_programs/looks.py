"""Prints, for many states of a training, how torch's functions look in each: one JSON object."""

import early  # isort: skip  # first: it imports torch

import copy
import functools
import hashlib
import importlib
import inspect
import io
import json
import os
import pickle
import sys
import threading
import time
import types
import typing
import warnings

import torch
import torch.overrides

warnings.simplefilter("ignore")  # behaviours.py is about warnings

TESTING_OVERRIDES = torch.overrides.get_testing_overrides()
SETS = []
"""Sets of all functions, one made in each state so far."""


def digest(value):
    """Return something short that changes with the value."""
    return hashlib.sha1(early.scrub(value).encode()).hexdigest()[:12]


def identity(path, found):
    first = early.EARLY.get(path)
    if first is None:
        return {"lacks early": path}
    return [
        found is first,
        found == first and first == found and not (found != first),
        hash(found) == early.EARLY_HASHES[path],
        found in early.EARLY_SET,
        first in {found},
        all(found in known and first in known for known in SETS),
        found is early.resolve(path),
        pickle.loads(pickle.dumps(found)) is first if in_place(path) else None,
    ]


def in_place(path):
    """Say whether pickle finds it by its name."""
    found = early.EARLY[path]
    try:
        pickle.dumps(found)
    except Exception:
        return False
    return True


TYPES = (
    types.MethodDescriptorType,
    types.WrapperDescriptorType,
    types.FunctionType,
    types.BuiltinFunctionType,
    types.MethodType,
    types.GetSetDescriptorType,
)
ASKS = (
    inspect.ismethoddescriptor,
    inspect.isfunction,
    inspect.isbuiltin,
    inspect.isroutine,
    inspect.ismethod,
    inspect.isdatadescriptor,
    inspect.isgeneratorfunction,
    inspect.iscoroutinefunction,
    callable,
)


def kind(path, found):
    return [
        type(found).__name__,
        str(type(found).__mro__),
        [isinstance(found, each) for each in TYPES],
        [ask(found) for ask in ASKS],
        [
            hasattr(found, name)
            for name in ("__get__", "__set__", "__code__", "__dict__", "__objclass__", "__self__")
        ],
        early.said(lambda: found.__objclass__.__name__),
        [name for name in dir(found)],
        sys.getsizeof(found) if isinstance(found, types.FunctionType) else None,
    ]


def names(path, found):
    return [
        early.said(lambda name=name: str(getattr(found, name)))
        for name in ("__name__", "__qualname__", "__module__", "__text_signature__")
    ] + [
        early.scrub(repr(found)),
        early.said(lambda: digest(found.__doc__)),
        digest(inspect.getdoc(found)),
        early.said(lambda: sorted(vars(found))),
        inspect.unwrap(found) is inspect.unwrap(early.EARLY.get(path, found)),
        inspect.unwrap(found) is found,
        early.said(lambda: inspect.unwrap(found).__qualname__),
    ]


def hints(found):
    return sorted((name, str(value)) for name, value in typing.get_type_hints(found).items())


def signature(path, found):
    code = getattr(found, "__code__", None)
    return [
        early.said(lambda: early.scrub(inspect.signature(found))),
        early.said(lambda: early.scrub(inspect.signature(found, follow_wrapped=False))),
        early.said(lambda: early.scrub(inspect.getfullargspec(found))),
        early.said(hints, found),
        early.said(lambda: early.scrub(found.__defaults__)),
        early.said(lambda: early.scrub(found.__kwdefaults__)),
        early.said(lambda: early.scrub(found.__annotations__)),
        code and list(code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]),
        code and [code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount],
        code and bool(code.co_flags & inspect.CO_VARARGS),
        code and bool(code.co_flags & inspect.CO_VARKEYWORDS),
    ]


def source(path, found):
    code = getattr(found, "__code__", None)
    return [
        code and [code.co_filename, code.co_firstlineno, code.co_name, getattr(code, "co_qualname", "")],
        code and [len(code.co_freevars), len(code.co_cellvars), code.co_flags],
        early.said(lambda: [digest(text) for text in inspect.getsourcelines(found)]),
        early.said(inspect.getsourcefile, found),
        early.said(inspect.getfile, found),
        early.said(lambda: getattr(inspect.getmodule(found), "__name__", None)),
        early.said(lambda: found.__globals__ is vars(sys.modules[found.__module__])),
    ]


class Holder:
    """Holds a function, as a data set holds its transform."""

    def __init__(self, transform):
        self.transform = transform


def saved(value):
    buffer = io.BytesIO()
    torch.save(value, buffer)
    return "saved"


def pickled(path, found):
    def wrapped():
        wrapper = functools.wraps(found)(lambda *arguments: None)
        return [early.scrub(getattr(wrapper, name, "none")) for name in functools.WRAPPER_ASSIGNMENTS] + [
            sorted(vars(wrapper))
        ]

    return [
        early.said(lambda: digest(pickle.dumps(found, 2))),
        early.said(lambda: digest(pickle.dumps(functools.partial(found, dtype=torch.float64), 2))),
        early.said(lambda: digest(pickle.dumps(Holder(found), 2))),
        early.said(lambda: saved(Holder(found))),
        early.said(lambda: copy.deepcopy(found) is found),
        early.said(lambda: copy.copy(found) is found),
        early.said(lambda: copy.deepcopy(Holder(found)).transform is found),
        [name for name in wrapped() if "<locals>" not in str(name)],
    ]


class Nothing:
    def __repr__(self):
        return "nothing"


def errors(path, found):
    """Call it in many wrong ways."""
    if path in early.LATE or (path.endswith("_loop") and not is_last):
        return None  # wrong arguments of the loops might break a probe, which would see no more
    nothing = Nothing()
    x = torch.ones(2, 2)
    calls = [
        ((), {}),
        ((nothing,) * 30, {}),
        ((), {"no_such_argument": nothing}),
        ((nothing,), {"no_such_argument": nothing}),
        ((nothing, nothing), {"no_such_argument": nothing}),
        ((5,), {"no_such_argument": nothing}),
    ]
    if path.startswith("torch:Tensor."):
        calls += [
            ((5,), {}),
            ((None,), {}),
            ((), {"self": x}),
            ((x,), {"self": x}),
            ((x, 1, 2, 3, 4, 5, 6, 7, 8), {}),
            ((x, nothing), {}),
            ((x, nothing, nothing, nothing), {}),
            ((x,), {"no_such_argument": 1}),
            ((x, 3), {"no_such_argument": 1}),
            ((x,), {"dtype": nothing}),
        ]
    return [early.scrub(early.said(lambda: str(found(*args, **named)))) for args, named in calls]


X, MODEL = torch.ones(1), torch.nn.Identity()
training = None


def bound(path, found):
    """Look at it as an attribute of an object, where it is a method of tensors, modules or optimizers."""
    owner, name = path.partition(":")[2].rpartition(".")[::2]
    holder = {"Tensor": X, "nn.Module": MODEL}.get(owner)
    if owner == "optim.Optimizer" and training is not None:
        holder = training.optimizer
    if holder is None:
        return None
    method = getattr(holder, name)
    return [
        type(method).__name__,
        early.said(lambda: method.__self__ is holder),
        method == getattr(holder, name),
        early.said(lambda: method.__qualname__),
        early.said(lambda: str(method.__module__)),
        early.said(lambda: early.scrub(inspect.signature(method))),
        early.scrub(repr(method))[:80],
        [ask(method) for ask in ASKS],
        [isinstance(method, each) for each in TYPES],
        early.said(lambda: method.__func__ is early.EARLY.get(path)),
    ]


def owners(path, found):
    """Say which class has it, and what stands in that class's own table."""
    owner, name = path.rpartition(".")[::2]
    if ":" not in owner:
        return None
    cls = early.resolve(owner)
    if not isinstance(cls, type):
        return None
    return [
        [base.__name__ for base in cls.__mro__ if name in vars(base)],
        type(inspect.getattr_static(cls, name)).__name__,
        [getattr(base, name) is found for base in cls.__mro__ if hasattr(base, name)],
        [getattr(base, name) == found for base in cls.__mro__ if hasattr(base, name)],
    ]


fresh = [None]
is_last = False


def tables(path, found):
    """Say which of torch's own tables know it."""
    asked = torch.overrides
    if not path.startswith("torch:"):
        return None
    listed = asked.get_overridable_functions()
    return [
        found in TESTING_OVERRIDES,
        found in asked.get_testing_overrides(),
        found in fresh[0],
        any(found in each for each in listed.values()),
        any(each is found for each in listed[torch.Tensor]),
        found in asked.get_ignored_functions(),
        found in asked.get_default_nowrap_functions(),
        asked.is_tensor_method_or_property(found),
        early.said(asked.resolve_name, found),
        any(each is found for each in torch.nn.parameter.UninitializedTensorMixin._allowed_methods),
        found in torch.nn.parameter.UninitializedTensorMixin._allowed_methods,
    ]


def scan(current):
    """Find every container of a module or class of torch's that holds what stands in a place now, or stood there."""
    ids = {id(found): path for path, found in current.items()}
    first = {id(found): path for path, found in early.EARLY.items()}
    lines = set()

    def look(where, container, depth=0):
        if isinstance(container, dict):
            items = list(container.keys()) + list(container.values())
        elif isinstance(container, (set, frozenset, list, tuple)):
            items = list(container)
        else:
            return
        if len(items) > 20000:
            return
        for item in items:
            for known, word in ((ids, "now"), (first, "early")):
                if id(item) in known:
                    lines.add("%s %s %s" % (where, word, known[id(item)]))
            if depth < 2 and isinstance(item, (dict, set, frozenset, list, tuple)):
                look(where, item, depth + 1)

    for name, module in sorted(sys.modules.items()):
        if name.split(".")[0] not in ("torch", "functorch", "torchgen"):
            continue
        for attribute, value in list(getattr(module, "__dict__", {}).items()):
            if not attribute.startswith("__"):
                look("%s.%s" % (name, attribute), value)
            if isinstance(value, type) and getattr(value, "__module__", None) == name:
                for inner, content in list(vars(value).items()):
                    if not inner.startswith("__"):
                        look("%s.%s.%s" % (name, attribute, inner), content)
    return sorted(lines)


def dynamo(path, found):
    """Say what Dynamo thinks of it."""
    rules = sys.modules.get("torch._dynamo.trace_rules")
    if rules is None:
        return {"lacks": "torch._dynamo.trace_rules"}
    return [
        found in early.said(rules.get_tensor_method),
        early.said(lambda: early.EARLY[path] in rules.get_tensor_method()),
        early.said(lambda: found in rules.get_torch_obj_rule_map()),
        early.said(lambda: getattr(rules.lookup(found), "__name__", None)),
        early.said(lambda: rules.is_aten_op_or_tensor_method(found)),
        early.said(lambda: rules.check(found)),
    ]


TOPICS = (
    ("identity", identity),
    ("kind", kind),
    ("names", names),
    ("signature", signature),
    ("source", source),
    ("pickled", pickled),
    ("errors", errors),
    ("bound", bound),
    ("owners", owners),
    ("tables", tables),
)
LIGHT = ("identity", "kind")


def look(only=None, scans=False):
    """Return how everything looks, by topic and path."""
    current, lacking = {}, {}
    for path in early.WATCHED + early.LATE:
        try:
            current[path] = early.resolve(path)
        except early.Lacks:
            lacking[path] = {"lacks": path}
    if only is None:
        cached = torch.overrides.get_testing_overrides
        fresh[0] = inspect.unwrap(cached)()
    seen = {}
    for topic, function in TOPICS:
        if only is None or topic in only:
            seen[topic] = dict(lacking)
            for path, found in current.items():
                seen[topic][path] = early.said(function, path, found)
    for path in early.LATE:
        seen.get("identity", {}).pop(path, None)
    base = getattr(torch._C, "TensorBase", None) or torch._C._TensorBase
    for path, found in current.items():
        name = path.rpartition(".")[2]
        if path.startswith("torch:Tensor.") and hasattr(base, name):
            beneath = getattr(base, name)
            seen["identity"][path] += [
                found is beneath,
                found == beneath,
                beneath == found,
                hash(found) == hash(beneath),
            ]
    if scans:
        seen["scanned"] = {"all": scan(current)}
    if only is None:
        if "torch._dynamo" in sys.modules:
            seen["dynamo"] = {path: early.said(dynamo, path, found) for path, found in current.items()}
        classes = [path.rpartition(".")[0] for path in current if "." in path.partition(":")[2]]
        seen["class_tables"], seen["dir"] = {}, {}
        for path in dict.fromkeys(classes):
            cls = early.resolve(path)
            seen["dir"][path] = list(dir(cls))
            if isinstance(cls, type):
                seen["class_tables"][path] = list(vars(cls))
        for path in dict.fromkeys(path.partition(":")[0] for path in current):
            seen["dir"][path] = list(dir(sys.modules[path]))
        seen["hooks"] = {
            name: len(value)
            for module in (torch.nn.modules.module, torch.Tensor)
            for name, value in sorted(vars(module).items())
            if name.startswith("_global_") and isinstance(value, dict)
        }
    SETS.append(set(current.values()))
    return seen


class Looking(torch.utils.data.Dataset):
    """Its items say how torch looks in the process that makes them."""

    def __len__(self):
        return 2

    def __getitem__(self, index):
        return json.dumps(look(only=None if index else LIGHT))


def look_in_worker(context):
    loader = torch.utils.data.DataLoader(
        Looking(), batch_size=None, num_workers=1, multiprocessing_context=context, timeout=120
    )
    return [json.loads(item) for item in loader][1]


def look_in_thread():
    found = []
    thread = threading.Thread(target=lambda: (look(LIGHT), found.append(look())))
    thread.start()
    thread.join()
    return found[0]


def look_in_child():
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        early.Training().steps(3)
        with os.fdopen(writing, "w") as file:
            file.write(json.dumps(early.said(look)))
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as file:
        found = json.loads(file.read())
    os.waitpid(child, 0)
    return found


def main():
    global training, is_last
    states = {"after the import": look(scans=True)}
    training = early.Training()
    training.steps(5)
    states["while recording"] = look()
    importlib.import_module("torch._dynamo")

    training.steps(2500)
    states["in a pause"] = look(scans=True)
    training.steps(700)
    states["in a pause, a thread"] = look_in_thread()
    training.steps(700)
    states["in a pause, a forked child"] = look_in_child()
    training.steps(700)
    states["in a pause, a forked worker"] = look_in_worker("fork")
    training.steps(700)
    states["a spawned worker"] = look_in_worker("spawn")
    often = set()
    for _ in range(40):
        training.steps(60)
        often.add(json.dumps(sorted(look(("identity",))["identity"].items())))
        training.steps(1)
        often.add(json.dumps([early.resolve(path) is early.EARLY[path] for path in sorted(early.EARLY)]))
    states["again and again"] = {"identity": {"all": sorted(often)}}
    for _ in range(80):
        training.step()
        time.sleep(0.004)
    states["after the pause"] = look(scans=True)
    torch.compile(lambda x: x.sin() + 1, backend="eager")(torch.ones(3))
    training.steps(20)
    is_last = True
    states["after a compilation"] = look()
    states["version"], states["steps"] = sys.version_info[:3], training.many
    states["instrumented"] = early.INSTRUMENTED
    print(json.dumps(states))


if __name__ == "__main__":
    main()
