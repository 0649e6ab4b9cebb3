from __future__ import annotations

from collections.abc import Callable

import pytest

NAME = "debug_calls"


@pytest.mark.parametrize(
    ("program", "expected"),
    [
        ("import torch\ntorch.autograd.set_detect_anomaly(True)  # here\nx = 1\n", ""),
        ("import torch\nif x:\n    torch.autograd.set_detect_anomaly(True)  # here\n", "+    pass  # here"),
        ("import torch\na = 1; torch.autograd.set_detect_anomaly(mode=True)  # here\n", "+a = 1  # here"),
        (
            "import torch\nwith torch.autograd.set_detect_anomaly(True):  # here\n    pass\n",
            "+with torch.autograd.set_detect_anomaly(False):  # here",
        ),
        (
            "import torch\nwith torch.autograd.detect_anomaly():  # here\n    pass\n",
            "+with torch.autograd.set_detect_anomaly(False):  # here",
        ),
        ("t = Trainer(detect_anomaly=True, devices=1)  # here\n", "+t = Trainer(devices=1)  # here"),
    ],
)
def test_it_is_switched_off(apply: Callable[..., str], program: str, expected: str) -> None:
    changed = apply(NAME, program).splitlines()
    assert [line for line in changed if line.startswith("+")] == ([expected] if expected else [])
    assert len([line for line in changed if line.startswith("-")]) == 1


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("torch.autograd.set_detect_anomaly(debug)", "literal True"),
        ("mode = torch.autograd.set_detect_anomaly(True)", "is used"),
        ("x = 1", "no call of anomaly detection"),
        ("with detect_anomaly(): x = 1", "imported by its own name"),
    ],
)
def test_what_is_not_known_is_refused(refuse: Callable[..., str], line: str, reason: str) -> None:
    assert reason in refuse(NAME, f"import torch\n{line}  # here\n")
