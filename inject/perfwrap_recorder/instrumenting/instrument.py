"""Puts calls of the recorder inside torch's own functions, which stay the same objects.

A function keeps its identity, names, signature, defaults, source and place in every table; only its ``__code__`` is
replaced, once: it contains the body twice, first between two calls of the recorder, then unchanged. Both have
torch's file name and line numbers, so tracebacks, ``stacklevel`` and ``inspect`` are as without perfwrap, and no frame
is added::

    def backward(tensors, ...):
        if not _perfwrap_is_compiling() and 3 not in _perfwrap_paused:
            _perfwrap_state = _perfwrap_begin_1(tensors, ...)
            if _perfwrap_state is not None:
                try:
                    ...  # torch's body; what it returns is kept in _perfwrap_result
                finally:
                    _perfwrap_end_1(_perfwrap_state, _perfwrap_result)
        ...  # torch's body

If the body raises, its frame has no variables of the recorder: tracebacks that show them are as without perfwrap.
The code is compiled from torch's source. If there is no source, or it does not compile to the code that runs, the
function is not changed. While Dynamo traces, it takes ``_perfwrap_is_compiling()`` as constant true, so it sees only
torch's body. The names that begin with ``_perfwrap`` are globals of torch's module.
"""

from __future__ import annotations
import __future__

import ast

from perfwrap_recorder.journal.paused_detail import paused

FUNCTION = type(lambda: 0)
CODE = type((lambda: 0).__code__)

FUTURE_FLAGS = 0
for _name in __future__.all_feature_names:
    FUTURE_FLAGS |= getattr(__future__, _name).compiler_flag & ~0x10

PREFIX = "_perfwrap_"
STATE, RESULT = PREFIX + "state", PREFIX + "result"

phases = {}  # id of the code of an instrumented function -> name of its phase
_instrumented = {}  # id of a function -> the function, its original code, and that with the recorder's calls
_source = {}  # the name of the file that was read last -> its lines
_is_compiling = []  # torch's function that returns whether Dynamo is tracing


def instrument(
    torch,
    function,
    begin,
    end,
    fail=None,
    values=(),
    condition="",
    known=(),
    kind=None,
    phase="",
    rebind=(),
    passing=None,
    always="",
):
    """Make a function of torch call ``begin(*values)`` first and ``end(state, result)`` when it returns.

    ``values`` are names of the function's parameters; one that this version of torch lacks is None. ``begin`` returns
    the state, or None if this call is not recorded. ``fail(state, error)`` is called if the function raises. None of
    the three may raise. Nothing is called while spans of that ``kind`` are paused, or if ``condition``, an expression
    over the parameters and the names in ``known``, is false. ``rebind`` names parameters whose values are taken from
    the state, a tuple that begins with them. ``passing`` is for calls that are recorded without a Python function: an
    expression whose value is their state if it is not 0, and a statement for their end; otherwise ``begin`` and
    ``end`` are called; ``fail`` is then called with (state, *values). ``always`` is an expression that is evaluated at
    each call, also during pauses, before everything else. Returns whether the function is instrumented.
    """
    function = innermost(function)
    if type(function) is not FUNCTION:
        return False
    if id(function) in _instrumented:
        return True
    if not _is_compiling:
        _is_compiling.append(find_is_compiling(torch))
    number = len(_instrumented) + 1
    names = {
        "begin": "%sbegin_%d" % (PREFIX, number),
        "end": "%send_%d" % (PREFIX, number),
        "fail": "%sfail_%d" % (PREFIX, number),
    }
    try:
        code = _weave(function, names, values, condition, kind, rebind, fail is not None, passing, always)
    except (OSError, SyntaxError, UnicodeError):  # no source, or source that Python cannot parse
        code = None
    if code is None:
        return False
    shared = function.__globals__
    shared.update(known)
    shared[PREFIX + "is_compiling"] = _is_compiling[0]
    shared[PREFIX + "paused"] = paused
    shared[names["begin"]], shared[names["end"]] = begin, end
    if fail:
        shared[names["fail"]] = fail
    _instrumented[id(function)] = function, function.__code__, code
    phases[id(code)] = phase or function.__name__
    function.__code__ = code
    return True


def is_instrumented(function):
    """Return whether the function calls the recorder."""
    return id(innermost(function)) in _instrumented


def uninstall():
    """Give all functions their original code again, except those whose code another tool has replaced since."""
    for function, original, woven in list(_instrumented.values()):
        if function.__code__ is woven:
            function.__code__ = original


def reinstall():
    """Undo ``uninstall``."""
    for function, original, woven in list(_instrumented.values()):
        if function.__code__ is original:
            function.__code__ = woven


def innermost(function):
    """Return the function inside decorators."""
    function = getattr(function, "__func__", function)
    while hasattr(function, "__wrapped__"):
        function = function.__wrapped__
    return function


def find_is_compiling(torch):
    """Return the function of this version of torch that returns whether Dynamo is tracing."""
    compiler = getattr(torch, "compiler", None)
    for owner, name in (
        (compiler, "is_dynamo_compiling"),
        (compiler, "is_compiling"),
        (torch._utils, "is_compiling"),
    ):
        if hasattr(owner, name):
            return getattr(owner, name)
    return bool


def _weave(function, names, values, condition, kind, rebind, can_fail, passing, always):
    """Return the code of a function with calls of the recorder in it; None if its source does not match."""
    code = function.__code__
    node = _parse(code)
    if node is None or not _is_same(_compile(node, code, function), code):
        return None
    arguments = node.args
    parameters = [
        each.arg for each in getattr(arguments, "posonlyargs", []) + arguments.args + arguments.kwonlyargs
    ]
    parameters += [each.arg for each in (arguments.vararg, arguments.kwarg) if each]
    begins = _has_docstring(node)
    line = node.body[begins].lineno if len(node.body) > begins else node.body[0].lineno
    tests = ["not %sis_compiling()" % PREFIX]
    if always:
        tests.append("((%s), 1)[1]" % always)
    if kind is not None:
        tests.append("%d not in %spaused" % (kind, PREFIX))
    if condition:
        tests.append("(%s)" % condition)
    words = dict(names, tests=" and ".join(tests), state=STATE, result=RESULT, error=PREFIX + "error")
    words["values"] = ", ".join([value if value in parameters else "None" for value in values])
    words["beginning"], words["ending"] = BEGINNING.format(**words), ENDING.format(**words)
    failing = FAILING if can_fail else "pass"
    words["others"] = "".join([", " + name for name in _assigned(passing[0])]) if passing else ""
    if passing:
        words["passing"], words["passed"] = passing
        words["beginning"] = "{passing} or {beginning}".format(**words)
        words["ending"] = PASSED.format(**words)
        failing = FAILING_PASSED if can_fail else "pass"
    words["failing"] = failing.format(**words)
    words["rebound"] = (
        "; ".join(["%s = %s[%d]" % (name, STATE, at) for at, name in enumerate(rebind)]) or "pass"
    )
    added = ast.parse("\n" * (line - 1) + ADDED.format(**words)).body[0]
    inner = added.body[1].body[1]
    inner.body[1:1] = _with_ends(node.body[begins:], KEEPING.format(**words))
    shared = []
    node.body = _without_globals(node.body, shared)
    inner.body = _without_globals(inner.body, [])
    node.body[begins:begins] = shared[:1] and [_join_globals(shared)] + [added] or [added]
    woven = _compile(node, code, function)
    return woven and woven.replace(co_filename=code.co_filename, **_qualname(code))


ADDED = """if {tests}:
 {state} = {beginning}
 if {state} is not None:
  {result} = None
  try:
   {rebound}
   return
  except BaseException as {error}:
   {failing}
   {state} = None
   raise
  finally:
   if {state} is not None:
    {ending}
   else:
    del {state}, {result}{others}
 else:
  del {state}{others}
"""
BEGINNING = "{begin}({values})"
ENDING = "{end}({state}, {result})"
PASSED = "({passed}) if {state}.__class__ is (0).__class__ else {ending}"
FAILING = "{fail}({state}, {error})"
FAILING_PASSED = "{fail}(({state}, {values}) if {state}.__class__ is (0).__class__ else {state}, {error})"
KEEPING = "{result} = 0; {result}"


def _assigned(expression):
    """Return the names that an expression assigns to, besides that of the state."""
    found = [node.target.id for node in ast.walk(ast.parse(expression)) if isinstance(node, ast.NamedExpr)]
    return [name for name in found if name != STATE]


def _qualname(code):
    return {"co_qualname": code.co_qualname} if hasattr(code, "co_qualname") else {}


def _has_docstring(node):
    first = node.body[0]
    value = first.value if isinstance(first, ast.Expr) else None
    return int(isinstance(getattr(value, "value", None), str))


def _with_ends(body, ending):
    """Return the statements of a function, changed to keep the returned value for the recorder.

    The given ones stay as they are; what need not change is part of both, since parsing twice takes longer.
    """
    found = []
    for node in body:
        if isinstance(node, ast.Return):
            put, name = ast.parse("\n" * (node.lineno - 1) + ending).body
            if node.value is not None:
                put.value = node.value
            else:
                put.value = ast.copy_location(ast.Constant(value=None, kind=None), node)
            found += [put, ast.copy_location(ast.Return(value=name.value), node)]
            continue
        if hasattr(node, "body") or hasattr(node, "cases"):
            if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                node = _copy(node)
                for field in ("body", "orelse", "finalbody"):
                    if hasattr(node, field):
                        setattr(node, field, _with_ends(getattr(node, field), ending))
                for field in ("handlers", "cases"):
                    if hasattr(node, field):
                        setattr(node, field, [_copy(each) for each in getattr(node, field)])
                        for each in getattr(node, field):
                            each.body = _with_ends(each.body, ending)
        found.append(node)
    return found


def _copy(node):
    """Return a copy of a node of a syntax tree, with the same parts."""
    new = node.__class__.__new__(node.__class__)
    new.__dict__.update(node.__dict__)
    return new


def _without_globals(body, found):
    """Return statements without ``global`` declarations, which are added to ``found``: they must come first."""
    kept = []
    for node in body:
        if isinstance(node, ast.Global):
            found.append(node)
            node = ast.copy_location(ast.Pass(), node)
        elif not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            for field in ("body", "orelse", "finalbody"):
                inner = getattr(node, field, None)
                if isinstance(inner, list):
                    setattr(node, field, _without_globals(inner, found))
            for each in [*getattr(node, "handlers", ()), *getattr(node, "cases", ())]:
                each.body = _without_globals(each.body, found)
        kept.append(node)
    return kept


def _join_globals(found):
    return ast.copy_location(ast.Global(names=[name for node in found for name in node.names]), found[0])


def _parse(code):
    """Return the syntax tree of a function, with line numbers; None if its source has another function."""
    lines = _source.get(code.co_filename)
    if lines is None:
        with open(code.co_filename, encoding="utf-8") as file:
            lines = file.readlines()
        _source.clear()
        _source[code.co_filename] = lines
    first = code.co_firstlineno - 1
    if first >= len(lines):
        return None
    is_indented = lines[first][:1] in " \t"
    text = "".join(_block(lines, first))
    tree = ast.parse("\n" * (first - is_indented) + "if 1:\n" * is_indented + text)
    node = tree.body[0].body[0] if is_indented else tree.body[0]
    return node if isinstance(node, ast.FunctionDef) and node.name == code.co_name else None


def _block(lines, first):
    """Return the lines of a function: up to one that is not indented deeper, after its signature."""
    depth = _depth(lines[first])
    last, has_begun = first, False
    for at in range(first, len(lines)):
        line = lines[at].strip()
        if has_begun and line and _depth(lines[at]) <= depth and not line.startswith("#"):
            break
        has_begun = (
            has_begun
            or (at > first or not line.startswith("@"))
            and line.endswith(":")
            and _ends(lines, at, depth)
        )
        last = at
    return lines[first : last + 1]


def _ends(lines, at, depth):
    """Return whether a line that ends in a colon ends a signature: the next line is indented deeper."""
    following = next((line for line in lines[at + 1 :] if line.strip()), "")
    return _depth(following) > depth


def _depth(line):
    return len(line) - len(line.lstrip())


def _compile(node, code, function):
    """Compile a function from its syntax tree, in an outer scope like its own."""
    outer = [node]
    owner = function.__qualname__.rpartition(".")[0].rpartition(".")[2]
    if owner and owner != "<locals>":
        made = ast.parse("class %s: pass" % owner).body[0]
        made.body = outer
        outer = [made]
    free = [name for name in code.co_freevars if name != "__class__"]
    if free:
        made = ast.parse("def outer():\n" + "".join([" %s = None\n" % name for name in free])).body[0]
        made.body += outer
        outer = [made]
    tree = ast.Module(body=outer, type_ignores=[])
    return _find(compile(tree, code.co_filename, "exec", code.co_flags & FUTURE_FLAGS, True), code)


def _find(within, code):
    """Return the code of that name and line among the constants of another."""
    for constant in within.co_consts:
        if isinstance(constant, CODE):
            if constant.co_name == code.co_name and constant.co_firstlineno == code.co_firstlineno:
                return constant
            found = _find(constant, code)
            if found is not None:
                return found
    return None


def _is_same(compiled, code):
    """Return whether the source is that of the running code, by the names and constants of both."""
    return compiled is not None and _traits(compiled) == _traits(code)


def _traits(code):
    constants = [repr(each) for each in code.co_consts if not isinstance(each, CODE)]
    inner = [_traits(each) for each in code.co_consts if isinstance(each, CODE)]
    names = (
        code.co_names,
        code.co_varnames,
        code.co_freevars,
        code.co_cellvars,
        code.co_flags,
        code.co_firstlineno,
    )
    return names, constants, inner
