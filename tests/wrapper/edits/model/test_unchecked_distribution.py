from __future__ import annotations

from collections.abc import Callable

import pytest

NAME = "unchecked_distribution"


@pytest.mark.parametrize(
    ("program", "added"),
    [
        (
            "from torch.distributions import Categorical\nm = Categorical(probs)  # here\n",
            "+m = Categorical(probs, validate_args=False)  # here",
        ),
        (
            "import torch\nm = torch.distributions.Normal(loc=mean, scale=std)  # here\n",
            "+m = torch.distributions.Normal(loc=mean, scale=std, validate_args=False)  # here",
        ),
        (
            "import torch.distributions as D\nm = D.Independent(D.Normal(mean, std), 1)  # here\n",
            "+m = D.Independent(D.Normal(mean, std, validate_args=False), 1, validate_args=False)  # here",
        ),
        (
            "from torch.distributions.categorical import Categorical as C\nm = C(logits=x)  # here\n",
            "+m = C(logits=x, validate_args=False)  # here",
        ),
    ],
)
def test_each_distribution_of_the_line_is_unchecked(
    apply: Callable[..., str], program: str, added: str
) -> None:
    assert added in apply(NAME, program)


@pytest.mark.parametrize(
    ("program", "said"),
    [
        ("from torch.distributions import Normal\nx = m.log_prob(a)  # here\n", "makes no distribution"),
        ("class Normal: pass\nm = Normal(a, b)  # here\n", "makes no distribution"),
        (
            "from torch.distributions import Normal\nm = Normal(a, b, validate_args=True)  # here\n",
            "has validate_args",
        ),
        ("from torch.distributions import Normal\nm = Normal(**parameters)  # here\n", "unpacked"),
        (
            "from torch.distributions import Normal\n"
            "try:\n    m = Normal(a, b)  # here\nexcept ValueError:\n    m = None\n",
            "try block",
        ),
        (
            "from torch.distributions import AffineTransform\nt = AffineTransform(0, 1)  # here\n",
            "makes no distribution",
        ),
        (
            "from torch.distributions import kl_divergence\nk = kl_divergence(p, q)  # here\n",
            "makes no distribution",
        ),
    ],
)
def test_it_is_refused(program: str, said: str, refuse: Callable[..., str]) -> None:
    assert said in refuse(NAME, program)
