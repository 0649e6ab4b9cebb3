"""What a step costs by modules, as a tree; equal layers of a numbered list are one node."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

from perfwrap import units
from perfwrap.diagnosis.model import LineAccount
from perfwrap.reports.html.encoding import clipped

MIN_SHARE = 0.001
"""Modules with a smaller share of the step are only counted."""

OPEN_SHARE, OPEN_DEPTH = 0.2, 3
"""Modules with a larger share are open from the beginning, down to this depth."""

MAX_CHILDREN = 60
MAX_ITEMS = 200
MAX_DEPTH = 40
"""Deeper modules belong to the one above."""


@dataclass
class Module:
    """A module, in nanoseconds without its children; the class is empty if it called no operation itself."""

    name: str
    kind: str = ""
    forward: float = 0.0
    backward: float = 0.0
    children: dict[str, Module] = field(default_factory=dict)
    layers: list[Module] = field(default_factory=list)
    """The equal layers that this one stands for."""

    @property
    def own(self) -> float:
        """Its time without its children."""
        return self.forward + self.backward

    def totals(self) -> tuple[float, float]:
        """Return its forward and backward with its children."""
        inside = [child.totals() for child in self.children.values()]
        return self.forward + sum(each[0] for each in inside), self.backward + sum(each[1] for each in inside)

    @property
    def ns(self) -> float:
        """Its time with its children."""
        return sum(self.totals())


def module_tree(account: LineAccount) -> dict[str, Any] | None:
    """Return the modules as a tree, the most expensive first, and what is outside of them; None without modules."""
    roots = _roots(account)
    if not roots:
        return None
    outside = account.step_ns - sum(root.ns for root in roots)
    return {
        "roots": _shown(roots, account.step_ns, 0),
        "outside": units.share(max(0.0, outside) / account.step_ns),
    }


def _roots(account: LineAccount) -> list[Module]:
    """Return the outermost modules; models of one class have numbers."""
    found: dict[tuple[str, int], Module] = {}
    for cost in account.modules:
        first, *names = cost.path.split(".")[:MAX_DEPTH]
        node = found.setdefault((first, cost.model), Module(first))
        for name in names:
            node = node.children.setdefault(name, Module(name))
        node.kind = cost.kind
        node.forward += cost.forward_ns
        node.backward += cost.backward_ns
    of_class: dict[str, list[Module]] = {}
    for root in found.values():
        of_class.setdefault(root.name, []).append(root)
    for several in of_class.values():
        for number, root in enumerate(several, start=1):
            root.name += f" #{number}" if len(several) > 1 else ""
    return list(found.values())


def _shown(modules: Iterable[Module], step_ns: float, depth: int) -> list[dict[str, Any]]:
    """Return siblings, the most expensive first; the small ones only as their number."""
    ordered = sorted(modules, key=lambda module: -module.ns)
    large = [module for module in ordered if module.ns >= MIN_SHARE * step_ns][:MAX_CHILDREN]
    rows = [_drawn(module, step_ns, depth) for module in large]
    small = ordered[len(large) :]
    if small:
        rest = Module(units.counted(len(small), "smaller module"))
        for module in small:
            forward, backward = module.totals()
            rest.forward += forward
            rest.backward += backward
        rows.append(_drawn(rest, step_ns, depth) | {"name": rest.name})
    return rows


def _drawn(module: Module, step_ns: float, depth: int) -> dict[str, Any]:
    """Return a module with its children."""
    module = _joined(module)
    forward, backward = module.totals()
    share = (forward + backward) / step_ns
    layers = [_joined(layer) for layer in module.layers]
    return {
        "name": clipped(module.name, 200),
        "kind": clipped(f"{len(layers)} × {module.kind}" if layers else module.kind, 100),
        "share": units.share(share),
        "own": units.share(module.own / step_ns),
        "forward": round(100 * forward / step_ns, 2),
        "backward": round(100 * backward / step_ns, 2),
        "each": f"{units.share(share / len(layers))} each" if layers else "",
        "layers": [
            {
                "name": clipped(layer.name, 200),
                "share": units.share(layer.ns / step_ns),
                "own": units.share(layer.own / step_ns),
                "forward": round(100 * layer.totals()[0] / step_ns, 2),
                "backward": round(100 * layer.totals()[1] / step_ns, 2),
            }
            for layer in layers[:MAX_ITEMS]
        ],
        "children": _shown(_grouped(module.children.values()), step_ns, depth + 1),
        "open": share >= OPEN_SHARE and depth < OPEN_DEPTH,
    }


def _joined(module: Module) -> Module:
    """Return a container of one module as that module, e.g. ``blocks.0–11``."""
    while not module.own and not module.kind and not module.layers:
        inside = _grouped(module.children.values())
        if len(inside) != 1:
            break
        (child,) = inside
        module = Module(
            f"{module.name}.{child.name}",
            child.kind,
            child.forward,
            child.backward,
            child.children,
            child.layers,
        )
    return module


def _grouped(modules: Iterable[Module]) -> list[Module]:
    """Return siblings; those of one class with consecutive numbers as one, with their children added up."""
    siblings = list(modules)
    numbered = sorted((each for each in siblings if _is_number(each.name)), key=lambda each: int(each.name))
    found = [each for each in siblings if not _is_number(each.name)]
    for _, run in groupby(enumerate(numbered), lambda item: (int(item[1].name) - item[0], item[1].kind)):
        layers = [each for _, each in run]
        if len(layers) == 1 or not layers[0].kind:
            found += layers
            continue
        together = _sum(f"{layers[0].name}–{layers[-1].name}", layers)
        together.layers = layers
        found.append(together)
    return found


def _is_number(name: str) -> bool:
    return name.isascii() and name.isdecimal() and len(name) < 10


def _sum(name: str, modules: list[Module]) -> Module:
    """Return modules as one; the class is that of all."""
    kinds = {each.kind for each in modules}
    whole = Module(name, kinds.pop() if len(kinds) == 1 else "")
    inside: dict[str, list[Module]] = {}
    for each in modules:
        whole.forward += each.forward
        whole.backward += each.backward
        for child in each.children.values():
            inside.setdefault(child.name, []).append(child)
    whole.children = {child: _sum(child, found) for child, found in inside.items()}
    return whole
