from __future__ import annotations

from collections.abc import Callable

import pytest

NAME = "hoisted_calls"
PROGRAM = """
import torch

def main():
    encoder = TextEncoder().eval()
    for parameter in encoder.parameters():
        parameter.requires_grad_(False)
    prompts = tokenise(NAMES)
    for epoch in range(6):
        for batch in loader:
            with torch.no_grad():
                texts = encoder(prompts)  # here
            loss = criterion(model(batch) @ texts.T, batch)
            loss.backward()
"""


def test_a_frozen_model_is_called_before_the_outermost_loop(apply: Callable[..., str]) -> None:
    assert apply(NAME, PROGRAM) == (
        "+    with torch.no_grad():\n+        texts = encoder(prompts)  # here\n"
        "-            with torch.no_grad():\n-                texts = encoder(prompts)  # here"
    )


def test_it_stays_inside_of_the_loop_that_changes_its_input(apply: Callable[..., str]) -> None:
    program = PROGRAM.replace("        for batch", "        prompts = tokenise(epoch)\n        for batch")
    assert apply(NAME, program).startswith(
        "+        with torch.no_grad():\n+            texts = encoder(prompts)"
    )


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("TextEncoder().eval()", "TextEncoder()", "does not freeze"),
        ("parameter.requires_grad_(False)", "print(parameter)", "calls encoder.parameters()"),
        ("    prompts =", "    optimizer = Adam([encoder])\n    prompts =", "passes encoder on"),
        ("            loss.backward()", "            encoder.train()", "calls encoder.train()"),
        ("            loss.backward()", "            prompts.add_(1)", "changes prompts"),
        ("            loss.backward()", "            texts += 1", "The loop changes texts"),
        ("            loss.backward()", "            kept.append(texts)", "another name"),
        ("encoder(prompts)", "encoder(augment(prompts))", "may return another value"),
        ("encoder(prompts)", "encoder(self.prompts)", "uses attributes"),
        ("            with torch.no_grad():", "            if batch:", "not the call of a model"),
        ("torch.no_grad():", "torch.no_grad():\n                step += 1", "not the call of a model"),
    ],
)
def test_what_may_be_another_value_is_refused(
    old: str, new: str, said: str, refuse: Callable[..., str]
) -> None:
    assert old in PROGRAM
    assert said in refuse(NAME, PROGRAM.replace(old, new))
