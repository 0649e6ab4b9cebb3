"""What may share the memory of some values, and where that memory may be changed.

The analysis goes by the names of variables and attributes, in any order of the lines: what gets its value from an
expression that may share is counted as sharing everywhere. In doubt a value shares, and an unknown call changes it.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Collection, Iterable, Iterator

import libcst as cst

from perfwrap.edits.syntax.call_arguments import called_name
from perfwrap.edits.syntax.makers import TENSOR, constructors, own_names, root
from perfwrap.edits.syntax.names import ADDING, is_stored
from perfwrap.edits.syntax.operations import changes_in_place, computes, imported, is_module, pairs
from perfwrap.edits.syntax.source_tree import Source, dotted_name

VIEWS = re.compile(
    "bool|broadcast_tensors|broadcast_to|cartesian_prod|chunk|coalesce|contiguous|detach|"
    "diagonal|double|einsum|expand|expand_as|flatten|float|half|int|long|meshgrid|movedim|"
    "narrow|permute|pad|reshape|split|sparse_coo_tensor|squeeze|swapaxes|t|to|to_dense|"
    "transpose|type_as|unbind|unflatten|unfold|unsqueeze|view|view_as"
)
"""Operations whose result may be a part of what they get."""
NUMBERS = (
    "len",
    "float",
    "int",
    "bool",
    "str",
    "abs",
    "range",
    "isinstance",
    "print",
    "round",
    "repr",
    "sum",
)
CONTAINERS = (
    "list",
    "tuple",
    "zip",
    "enumerate",
    "reversed",
    "sorted",
    "min",
    "max",
    "iter",
    "next",
    "dict",
    "map",
)
"""Functions of Python whose result has what they get in it."""
PLAIN = re.compile(
    "item|tolist|backward|size|dim|numel|type|is_contiguous|stride|get_device|parameters|"
    "named_parameters|state_dict|buffers|modules|children|named_modules|eval|train|zero_grad|"
    "step|load_state_dict|append|extend|add_argument|parse_args|keys|items|format|join"
)
"""Methods that return nothing that is shared."""
NEW = re.compile(
    r"Linear|Bilinear|Conv\w+|LayerNorm|GroupNorm|BatchNorm\w+|Embedding|GRU|LSTM|RNN|\w+Cell|MultiheadAttention|\w+Loss|"
    "GELU|SiLU|Sigmoid|Tanh|Softmax|LogSoftmax|Softplus"
)
"""Modules of torch whose result is a new tensor."""
RANDOM = re.compile(
    "rand|randn|randint|randperm|rand_like|randn_like|randint_like|normal|bernoulli|multinomial|empty"
)
ESCAPES = re.compile(
    "numpy|register_hook|retain_grad|register_buffer|register_parameter|put|send|submit|setattr|exec|vars|asarray|id|"
    "from_numpy"
)
"""What changes a value later, or tells it from a copy."""
PLAIN_ATTRIBUTES = ("shape", "dtype", "device", "ndim", "is_cuda", "layout", "requires_grad", "training")
KNOWN_PACKAGES = {
    "torch",
    "numpy",
    "tqdm",
    "torchvision",
    "matplotlib",
    "sklearn",
    "scipy",
    *sys.stdlib_module_names,
}
"""Packages whose code does not change the tensors that it gets."""


class Sharing:
    """The names that may share the memory of what some names, and calls of some functions, stand for."""

    def __init__(
        self,
        source: Source,
        scope: cst.CSTNode,
        functions: Collection[str] = (),
        variables: Iterable[str] = (),
        attributes: Iterable[str] = (),
    ) -> None:
        """``variables`` belong to the scope, ``attributes`` to any object, ``functions`` are called by these names."""
        self._source, self._scope = source, scope
        self._stored = {
            outer: own_names(source, outer)
            for outer in source.inside(source.module, cst.FunctionDef, cst.Lambda, cst.ClassDef)
        }
        self._made = constructors(source)
        self._names = {(scope, name) for name in variables if name != "self"}
        self._attributes, self._functions = set(attributes), set(functions)
        self._given = len(self._attributes) + len(self._functions)
        self._returns = False
        """Whether a lambda or a ``forward`` returns what is shared: then any unknown call may."""
        before = -1
        while before != self._size():
            before = self._size()
            self._spread()

    def _size(self) -> int:
        return len(self._names) + len(self._attributes) + len(self._functions) + self._returns

    def _key(self, node: cst.Name) -> tuple[cst.CSTNode, str]:
        """Return a variable as the scope that it belongs to, and its name."""
        for outer in self._source.around(node, cst.FunctionDef, cst.Lambda, cst.ClassDef):
            if node.value in self._stored[outer]:
                return outer, node.value
        return self._source.module, node.value

    def may_share(self, node: cst.CSTNode | None) -> bool:
        """Return whether an expression may be, or hold, what is shared."""
        if node is None or isinstance(node, cst.BaseNumber | cst.BaseString | cst.Comparison):
            return False
        if isinstance(node, cst.Name):
            return self._key(node) in self._names
        if isinstance(node, cst.Attribute):
            if node.attr.value in PLAIN_ATTRIBUTES:
                return False
            return node.attr.value in self._attributes or self.may_share(node.value)
        if isinstance(node, cst.Call):
            return self._may_return(node)
        if isinstance(node, cst.BinaryOperation):
            both = (node.left, node.right)
            is_list = isinstance(node.operator, cst.Add | cst.Multiply) and not any(
                map(self._is_tensor, both)
            )
            return is_list and any(map(self.may_share, both))
        if isinstance(node, cst.UnaryOperation):
            return isinstance(node.operator, cst.Plus) and self.may_share(node.expression)
        if isinstance(node, cst.Subscript):
            return self.may_share(node.value)
        if isinstance(node, cst.IfExp):
            return self.may_share(node.body) or self.may_share(node.orelse)
        return any(
            self.may_share(child)
            for child in node.children
            if not isinstance(child, cst.BaseParenthesizableWhitespace)
        )

    def change(self) -> cst.CSTNode | None:
        """Return the first place that may change what is shared, or lose sight of it; None if there is none."""
        source = self._source
        found: Iterator[cst.CSTNode] = source.inside(
            self._scope, cst.AugAssign, cst.Subscript, cst.Attribute, cst.Call
        )
        for node in found:
            if isinstance(node, cst.AugAssign):
                changed = self.may_share(node.target)
            elif isinstance(node, cst.Call):
                changed = self._may_change(node)
            else:
                # The part of a value gets another one; ``self.mask = mask`` changes no tensor.
                assert isinstance(node, cst.Subscript | cst.Attribute)
                changed = is_stored(source, node) and self.may_share(node.value)
            if changed:
                return node
        return None

    def leaves(self) -> bool:
        """Return whether a function returns what is shared, an attribute keeps it, or the module itself."""
        kept = any(scope is self._source.module for scope, _ in self._names)
        return kept or self._returns or len(self._attributes) + len(self._functions) > self._given

    def _is_tensor(self, node: cst.CSTNode) -> bool:
        """Return whether an expression certainly is a tensor or a number: a sum with it is a new one."""
        if isinstance(node, cst.Subscript):
            return len(node.slice) > 1
        if isinstance(node, cst.BinaryOperation):
            if isinstance(node.operator, cst.Add | cst.Multiply):
                return self._is_tensor(node.left) or self._is_tensor(node.right)
            return not isinstance(node.operator, cst.Modulo)
        if isinstance(node, cst.UnaryOperation):
            return not isinstance(node.operator, cst.Not)
        if isinstance(node, cst.Call):
            name = called_name(node)
            return computes(self._source, node) and name not in (
                "chunk",
                "split",
                "unbind",
                "size",
                "topk",
                "sort",
            )
        return isinstance(node, cst.Float)

    def _may_return(self, call: cst.Call) -> bool:
        name = called_name(call)
        if name in self._functions:
            return True
        if isinstance(call.func, cst.Name) and name in NUMBERS:
            return False
        if isinstance(call.func, cst.Attribute) and changes_in_place(name):
            return self.may_share(call.func.value)
        if (
            PLAIN.fullmatch(name)
            or self._draws(call)
            or (computes(self._source, call) and not VIEWS.fullmatch(name))
        ):
            return False
        made = self._made.get(name)
        if made and all(kind in self._stored_classes() or NEW.fullmatch(kind) for kind in made):
            return any(f"{kind}.forward" in self._functions for kind in made)
        if self._returns and self._is_unknown(call):
            return True
        base = call.func.value if isinstance(call.func, cst.Attribute) else None
        return self.may_share(base) or any(self.may_share(argument.value) for argument in call.args)

    def _stored_classes(self) -> set[str]:
        return {outer.name.value for outer in self._stored if isinstance(outer, cst.ClassDef)}

    def _is_unknown(self, call: cst.Call) -> bool:
        """Return whether a call may be one of a module of the file, or of a lambda."""
        name, first = called_name(call), root(call)
        is_library = is_module(self._source, first) or first in imported(self._source)
        is_own = isinstance(call.func, cst.Name) and name in {
            outer.name.value for outer in self._stored if not isinstance(outer, cst.Lambda)
        }
        return not (is_library or is_own or name in CONTAINERS or computes(self._source, call))

    def _draws(self, call: cst.Call) -> bool:
        """Return whether a call of torch makes a new tensor of random numbers."""
        return is_module(self._source, root(call)) and RANDOM.fullmatch(called_name(call)) is not None

    def _spread(self) -> None:
        """Add what gets its value from something that shares."""
        source = self._source
        for node in source.inside(
            self._scope,
            *(cst.Assign, cst.AnnAssign, cst.NamedExpr, cst.AugAssign, cst.For, cst.CompFor, cst.WithItem),
            *(cst.Return, cst.Yield, cst.Lambda, cst.Call),
        ):
            if isinstance(node, cst.Assign):
                for target, value in pairs(node):
                    self._store(target, value)
            elif isinstance(node, cst.AnnAssign | cst.NamedExpr | cst.AugAssign):
                self._store(node.target, node.value)
            elif isinstance(node, cst.For | cst.CompFor):
                self._store(node.target, node.iter)
            elif isinstance(node, cst.WithItem) and node.asname is not None:
                self._store(node.asname.name, node.item)
            elif isinstance(node, cst.Return | cst.Yield):
                self._return(node)
            elif isinstance(node, cst.Lambda):
                self._returns = self._returns or self.may_share(node.body)
            elif isinstance(node, cst.Call):
                self._pass_on(node)

    def _return(self, node: cst.Return | cst.Yield) -> None:
        function = self._source.scope(node)
        if not self.may_share(node.value) or not isinstance(function, cst.FunctionDef):
            return
        name, owner = function.name.value, self._source.scope(function)
        if name in ("forward", "__call__"):
            self._returns = True
        else:
            self._functions.add(name)
        if isinstance(owner, cst.ClassDef):
            self._functions.add(f"{owner.name.value}.{name}")

    def _store(self, target: cst.CSTNode, value: cst.CSTNode | None) -> None:
        if not self.may_share(value):
            return
        while isinstance(target, cst.Subscript):
            if self._made.get(dotted_name(target.value)) == {TENSOR}:
                return  # It copies the values.
            target = target.value
        if isinstance(target, cst.Name):
            self._names.add(self._key(target))
        elif isinstance(target, cst.Attribute):
            self._attributes.add(target.attr.value)
        elif isinstance(target, cst.Tuple | cst.List):
            for element in target.elements:
                self._store(element.value, value)

    def _pass_on(self, call: cst.Call) -> None:
        """Add the parameters of the functions that a call may give something to."""
        name = called_name(call)
        if not any(self.may_share(argument.value) for argument in call.args):
            return
        if name in ADDING and isinstance(call.func, cst.Attribute):
            self._store(call.func.value, call.args[0].value if len(call.args) == 1 else call)
            return
        if computes(self._source, call) or (
            isinstance(call.func, cst.Name) and name in (*NUMBERS, *CONTAINERS)
        ):
            return
        for function in self._source.inside(self._scope, cst.FunctionDef, cst.Lambda):
            if not self._may_be(function, call):
                continue
            given = function.params
            others = [each for each in (given.star_arg, given.star_kwarg) if isinstance(each, cst.Param)]
            names = {
                each.name.value
                for each in (*given.params, *given.kwonly_params, *given.posonly_params, *others)
            }
            self._names |= {(function, each) for each in names if each != "self"}

    def _may_be(self, function: cst.FunctionDef | cst.Lambda, call: cst.Call) -> bool:
        """Return whether a call may be one of a function: by its name, as a module, or as that of its class."""
        if isinstance(function, cst.Lambda):
            return True
        name, called, owner = function.name.value, called_name(call), self._source.scope(function)
        if name == called:
            return True
        kind = owner.name.value if isinstance(owner, cst.ClassDef) else ""
        if name in ("forward", "__call__"):
            made = self._made.get(called)
            return kind in made if made else self._is_unknown(call)
        return name == "__init__" and kind == called

    def _may_change(self, call: cst.Call) -> bool:
        """Return whether a call may change what is shared, or give it to code that may."""
        source, name = self._source, called_name(call)
        base = call.func.value if isinstance(call.func, cst.Attribute) else None
        is_given = any(self.may_share(argument.value) for argument in call.args)
        if base is not None and self.may_share(base):
            is_place = name.endswith("_") and not name.endswith("__")
            if (
                is_place
                or ESCAPES.fullmatch(name)
                or any(_keyword(argument) in ("out", "inplace") for argument in call.args)
            ):
                return True
        if base is not None and changes_in_place(name) and not is_module(source, dotted_name(base)):
            return False
        if not is_given or computes(source, call):
            return is_given and any(_keyword(argument) in ("out", "inplace") for argument in call.args)
        if self._draws(call):
            return False
        if is_module(source, root(call)) or ESCAPES.fullmatch(name):
            return True
        if name in (*NUMBERS, *CONTAINERS) and isinstance(call.func, cst.Name):
            return False
        if name in ADDING and base is not None:
            return name.endswith("_") and self.may_share(base)
        is_own = any(
            each.name.value == name for each in source.inside(source.module, cst.FunctionDef, cst.ClassDef)
        )
        # Such as a module of torch's, or of another file.
        return not is_own and ("inplace=True" in source.module.code or not _imports_only_known(source))


def _keyword(argument: cst.Arg) -> str:
    return argument.keyword.value if argument.keyword is not None else ""


def _imports_only_known(source: Source) -> bool:
    """Return whether a file imports nothing that may change the tensors that it gets, such as other files."""
    for node in source.inside(source.module, cst.Import, cst.ImportFrom):
        if isinstance(node, cst.ImportFrom):
            names = ["." if node.relative or node.module is None else dotted_name(node.module)]
        else:
            names = [dotted_name(alias.name) for alias in node.names]
        if any(name.partition(".")[0] not in KNOWN_PACKAGES for name in names):
            return False
    return True
