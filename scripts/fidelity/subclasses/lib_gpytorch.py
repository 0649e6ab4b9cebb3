"""gpytorch and linear_operator, whose operators answer torch's functions from a table by function object."""

import copy
import pickle
import warnings

import gpytorch
import linear_operator as lo
import torch
from linear_operator.operators import (
    DenseLinearOperator,
    DiagLinearOperator,
    RootLinearOperator,
    ToeplitzLinearOperator,
)
from moments import check, digest, kind, watch

warnings.filterwarnings("ignore")


class Regression(gpytorch.models.ExactGP):
    """A process with a scaled kernel."""

    def __init__(self, x, y, likelihood):
        super().__init__(x, y, likelihood)
        self.mean_module = gpytorch.means.ConstantMean()
        self.covar_module = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel())

    def forward(self, x):
        """Return the prior."""
        return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))


def described(value):
    """Say the class and the digest of what it stands for."""
    if isinstance(value, tuple):
        return [described(part) for part in value]
    dense = value.to_dense() if isinstance(value, lo.LinearOperator) else value
    return f"{kind(value)} {digest(dense) if isinstance(dense, torch.Tensor) else dense}"


OPERATORS = {
    "dense": lambda: DenseLinearOperator(torch.eye(3) * 2 + 0.1),
    "diag": lambda: DiagLinearOperator(torch.arange(1.0, 4.0)),
    "root": lambda: RootLinearOperator(torch.eye(3) + 0.2),
    "toeplitz": lambda: ToeplitzLinearOperator(torch.tensor([3.0, 1.0, 0.5])),
}
CALLS = {
    "to": lambda t: t.to(torch.float64),
    "cpu": lambda t: t.cpu(),
    "to cpu": lambda t: t.to("cpu"),
    "double": lambda t: t.double(),
    "clone": lambda t: torch.clone(t),
    "add": lambda t: torch.add(t, t),
    "matmul": lambda t: torch.matmul(t, torch.ones(3, 1)),
    "solve": lambda t: torch.linalg.solve(t, torch.ones(3, 1)),
    "diagonal": lambda t: torch.diagonal(t, dim1=-1, dim2=-2),
    "logdet": torch.logdet,
    "cholesky": torch.linalg.cholesky,
    "sum": lambda t: torch.sum(t, -1),
    "mul": lambda t: torch.mul(t, 2.0),
    "exp": torch.exp,
    "numel": torch.numel,
    "transpose": lambda t: torch.transpose(t, -1, -2),
    "method": lambda t: torch.Tensor.matmul(t, t),
    "rmatmul": lambda t: torch.ones(1, 3) @ t,
    "deepcopy": copy.deepcopy,
    "pickle": lambda t: pickle.loads(pickle.dumps(t)),
    "tensor.to": lambda t: torch.Tensor.to(t, torch.float64),
    "eigh": torch.linalg.eigh,
    "nonzero": torch.nonzero,
}


@check
def calls():
    """What torch's functions give for each operator."""
    found = []
    for name, make in OPERATORS.items():
        for call_name, call in CALLS.items():
            try:
                found.append(f"{name} {call_name} {described(call(make()))}")
            except Exception as error:
                found.append(f"{name} {call_name} {type(error).__name__} {str(error)[:70]}")
    return "\n    ".join(found)


@check
def learns():
    """A process learns and predicts, moved to the CPU and to another precision."""
    x = torch.linspace(0, 1, 12, dtype=torch.float64)
    likelihood = gpytorch.likelihoods.GaussianLikelihood().double()
    model = Regression(x, torch.sin(x * 6), likelihood).to("cpu").double()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    objective = gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, model)
    for _ in range(5):
        optimizer.zero_grad()
        loss = -objective(model(x), model.train_targets)
        loss.backward()
        optimizer.step()
    model.eval(), likelihood.eval()
    with torch.no_grad(), gpytorch.settings.fast_pred_var():
        predicted = likelihood(model(x + 0.1))
    return (
        loss.item(),
        digest(predicted.mean),
        digest(predicted.variance),
        [digest(p) for p in model.parameters()],
    )


watch(1500, 500, counted=False)
