from __future__ import annotations

from collections.abc import Callable

import pytest

NAME = "mapped_loop"
PROGRAM = """
import torch

def overlap(box, anchors):
    low, high = torch.maximum(box[:2], anchors[:, :2]), torch.minimum(box[2:], anchors[:, 2:])
    common = (high - low).clamp(min=0).prod(-1)
    area = (box[2:] - box[:2]).prod(-1) + (anchors[:, 2:] - anchors[:, :2]).prod(-1)
    return common / (area - common)

def assign(boxes, anchors):
    quality = boxes.new_zeros(boxes.shape[0], boxes.shape[1], len(anchors))
    # Each picture.
    for picture in range(boxes.shape[0]):
        # Each box.
        for number in range(boxes.shape[1]):
            quality[picture, number] = overlap(boxes[picture, number], anchors)  # here
    return quality
"""
LIST = """
import torch

def distances(x, y):
    rows, (count, _) = [], x.shape
    out = []
    batch, size = x.shape
    for i in range(batch):
        out.append(torch.cdist(x[i][None], y)[0] * x[i].sum())  # here
    return torch.stack(out)
"""


TAGS = """
import torch

class Loss:
    def forward(self, logits, truth):
        losses = []
        for tag in range(logits.shape[1]):
            # The score.
            score, wanted = logits[:, tag], truth[:, tag : tag + 1]
            weight = torch.where(wanted[:, 0] > 0, 1 - self.share[tag], self.share[tag])  # rare
            losses.append((weight * score).sum() / weight.sum())  # here
        return torch.stack(losses).mean()
"""
FORWARD = """
def forward(logits, truth):
    loss = Loss()
    loss.share = logits[0].detach()
    return loss.forward(logits, truth)
"""
SWAPPED = """
import torch

def swapped(x, y):
    rows, columns, _ = x.shape
    out = torch.zeros(columns, rows, len(y))
    for i in range(columns):
        for j in range(rows):
            out[i, j] = torch.cdist(x[j, i][None], y)[0]  # here
    return out
"""
COLUMNS = """
import torch

def overlaps(anchors, boxes):
    table = torch.zeros(len(anchors), len(boxes))
    for j in range(len(boxes)):
        table[:, j] = torch.cdist(anchors, boxes[j : j + 1])[:, 0]  # here
    return table * boxes.sum(-1)
"""


def test_several_statements_become_a_function(apply: Callable[..., str]) -> None:
    found = apply(NAME, TAGS)
    assert "+        def one_tag(logits_part, truth_part, self_share_part):\n" in found
    assert "+            score, wanted = logits_part, truth_part[:, None]\n" in found
    assert "+            return (weight * score).sum() / weight.sum()  # here\n" in found
    assert (
        "+        if logits.shape[1]:\n"
        "+            losses.extend(torch.vmap(one_tag, in_dims=(1, 1, 0))(logits, truth, self.share).unbind())"
        in found
    )
    assert "# The score." not in found, "it stays"


def test_columns_become_a_dimension(apply: Callable[..., str]) -> None:
    assert apply(NAME, COLUMNS) == (
        "-    for j in range(len(boxes)):\n"
        "-        table[:, j] = torch.cdist(anchors, boxes[j : j + 1])[:, 0]  # here\n"
        "+    if len(boxes):\n"
        "+        table[:, : len(boxes)] = torch.vmap("
        "lambda boxes_part: torch.cdist(anchors, boxes_part[None])[:, 0], out_dims=1)(boxes)  # here"
    )


def test_nested_loops_become_one_computation(apply: Callable[..., str]) -> None:
    assert apply(NAME, PROGRAM) == (
        "-    for picture in range(boxes.shape[0]):\n"
        "-        # Each box.\n"
        "-        for number in range(boxes.shape[1]):\n"
        "-            quality[picture, number] = overlap(boxes[picture, number], anchors)  # here\n"
        "+    # Each box.\n"
        "+    if boxes.shape[0] and boxes.shape[1]:\n"
        "+        quality[: boxes.shape[0], : boxes.shape[1]] = "
        "torch.vmap(torch.vmap(lambda boxes_part: overlap(boxes_part, anchors)))(boxes)  # here"
    )


def test_a_list_gets_all_results(apply: Callable[..., str]) -> None:
    assert (
        "+    if batch:\n"
        "+        out.extend(torch.vmap(lambda x_part: torch.cdist(x_part[None], y)[0] * x_part.sum())(x).unbind())"
        in apply(NAME, LIST)
    )


def test_the_line_may_be_in_the_function_that_the_loop_calls(apply: Callable[..., str]) -> None:
    program = PROGRAM.replace("  # here", "").replace("prod(-1)\n    area", "prod(-1)  # here\n    area")
    assert "torch.vmap(torch.vmap(" in apply(NAME, program)


@pytest.mark.parametrize(
    ("program", "function", "shapes"),
    [
        (PROGRAM, "assign", ((3, 5, 4), (7, 4))),
        (PROGRAM, "assign", ((2, 0, 4), (7, 4))),
        (LIST, "distances", ((6, 3), (7, 3))),
        (TAGS + FORWARD, "forward", ((6, 3), (6, 3))),
        (COLUMNS, "overlaps", ((6, 3), (5, 3))),
        (SWAPPED, "swapped", ((3, 5, 4), (7, 4))),
    ],
)
def test_results_and_gradients_are_the_same(
    program: str, function: str, shapes: tuple[tuple[int, ...], ...]
) -> None:
    torch = pytest.importorskip("torch")
    from perfwrap.edits import edit
    from perfwrap.edits.outcome import Edited, Target

    line = next(number for number, text in enumerate(program.splitlines(), 1) if "# here" in text)
    found = edit(NAME, program, Target(line))
    assert isinstance(found, Edited)
    results = []
    for text in (program, found.text):
        torch.manual_seed(0)
        inputs = [torch.rand(shape, requires_grad=True) for shape in shapes]
        names: dict[str, object] = {}
        exec(text, names)
        result = names[function](*inputs)
        # Of a loop without a round nothing requires a gradient.
        gradients = (
            torch.autograd.grad(result.square().sum(), inputs, allow_unused=True)
            if result.requires_grad and result.numel()
            else ()
        )
        results.append([result, *(each for each in gradients if each is not None)])
    assert len(results[0]) == len(results[1])
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("range(boxes.shape[1])", "range(count)", "whole dimension"),
        ("range(boxes.shape[1])", "range(1, boxes.shape[1])", "from zero to a length"),
        ("range(boxes.shape[1])", "boxes", "from zero to a length"),
        (
            "overlap(boxes[picture, number], anchors)",
            "overlap(boxes[picture, 0], anchors)",
            "whole dimension",
        ),
        ("overlap(boxes[picture, number], anchors)", "overlap(boxes, anchors)", "no parts"),
        ("anchors)  # here", "anchors) + number  # here", "something else than a part"),
        ("anchors)  # here", "anchors) + quality[0, 0]  # here", "which earlier rounds set"),
        ("# here", "# here\n            count(number)", "neither sets a part"),
        ("# here", "# here\n            if boxes.any(): quality = 0", "not one simple statement"),
        ("quality = boxes.new_zeros", "quality = make", "a tensor that the function makes"),
        ("    return quality", "    return quality[picture]", "is used outside of the loop"),
        ("boxes[picture, number]", "boxes[0, picture, number]", "is not known"),
        ("    common =", "    print(low)\n    common =", "may do more than to compute"),
        ("    common =", "    common = torch.rand(3)\n    common =", "may do more than to compute"),
        (
            "    common =",
            "    import random\n    common = random.random()\n    common =",
            "more than to compute",
        ),
        ("    common =", "    SEEN[0] = low\n    common =", "changes SEEN"),
        ("    common =", "    anchors[0] = 1\n    common =", "changes anchors"),
        ("    common =", "    global COUNT\n    common =", "more than to compute"),
        ("def overlap", "@cached\ndef overlap", "more than to compute"),
    ],
)
def test_what_rounds_may_not_share_is_refused(
    refuse: Callable[..., str], old: str, new: str, reason: str
) -> None:
    assert old in PROGRAM
    assert reason in refuse(NAME, PROGRAM.replace(old, new, 1))


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("out = []", "out = make()", "neither sets a part"),
        ("batch, size = x.shape", "batch = 4", "whole dimension"),
        ("torch.cdist(x[i][None], y)", "self.head(x[i])", "more than to compute"),
        ("torch.cdist(x[i][None], y)", "x[i].item()", "more than to compute"),
        ("torch.cdist(x[i][None], y)", "torch.dropout(x[i], 0.5, True)", "more than to compute"),
    ],
)
def test_other_lists_are_refused(refuse: Callable[..., str], old: str, new: str, reason: str) -> None:
    assert old in LIST
    assert reason in refuse(NAME, LIST.replace(old, new))
