"""Losses, weights and random numbers are those of a bare run, bit for bit, with both windows open on the way."""

from __future__ import annotations

import pytest

from .conftest import CONVERTS

PLAIN = """
net = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Dropout(0.3), nn.Linear(16, 4))
optimizer = torch.optim.{optimizer}
for step in range(STEPS):
    x, y = torch.randn(6, 8), torch.randint(0, 4, (6,))
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(net(x), y)
    loss.backward()
    optimizer.step()
    tell(loss)
tell_all(net)
"""

PROGRAMS = {
    "dropout and Adam": PLAIN.format(optimizer="AdamW(net.parameters(), lr=0.01)"),
    "SGD with momentum": PLAIN.format(optimizer="SGD(net.parameters(), lr=0.1, momentum=0.9, nesterov=True)"),
    "convolutions and batch norm": """
net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(72, 5))
net = net.to(memory_format=torch.channels_last)
optimizer = torch.optim.Adam(net.parameters())
for step in range(STEPS):
    optimizer.zero_grad()
    loss = net(torch.randn(4, 3, 8, 8)).pow(2).mean()
    loss.backward()
    nn.utils.clip_grad_norm_(net.parameters(), 0.5)
    optimizer.step()
    tell(loss)
tell_all(net)
""",
    "activation checkpointing": """
from torch.utils.checkpoint import checkpoint
block = nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.2), nn.GELU())
head = nn.Linear(8, 1)
optimizer = torch.optim.Adam([*block.parameters(), *head.parameters()])
for step in range(STEPS):
    x = torch.randn(4, 8, requires_grad=True)
    optimizer.zero_grad()
    loss = head(checkpoint(block, checkpoint(block, x, use_reentrant=False), use_reentrant=True)).pow(2).mean()
    loss.backward()
    optimizer.step()
    tell(loss, x.grad)
tell_all(block, head)
""",
    "autocast with accumulation": """
net = nn.Sequential(nn.Linear(8, 32), nn.LayerNorm(32), nn.GELU(), nn.Linear(32, 4))
optimizer = torch.optim.AdamW(net.parameters())
schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS)
for step in range(STEPS):
    for part in range(3):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = nn.functional.cross_entropy(net(torch.randn(4, 8)), torch.randint(0, 4, (4,))) / 3
        loss.backward()
        tell(loss)
    optimizer.step()
    schedule.step()
    optimizer.zero_grad()
tell_all(net)
""",
    "LBFGS with a closure": """
net = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
optimizer = torch.optim.LBFGS(net.parameters(), lr=0.1, max_iter=4, line_search_fn="strong_wolfe")
x, y = torch.randn(16, 4), torch.randn(16, 1)
def closure():
    optimizer.zero_grad()
    loss = (net(x) - y).pow(2).mean()
    loss.backward()
    return loss
for step in range(STEPS):
    tell(optimizer.step(closure))
tell_all(net)
""",
    "a GAN with gradient penalty and two optimizers": """
maker = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 8))
critic = nn.Sequential(nn.Linear(8, 16), nn.LeakyReLU(0.2), nn.Linear(16, 1))
of_maker, of_critic = torch.optim.Adam(maker.parameters()), torch.optim.Adam(critic.parameters())
for step in range(2 * STEPS):
    real, fake = torch.randn(6, 8), maker(torch.randn(6, 4)).detach()
    share = torch.rand(6, 1)
    mixed = (share * real + (1 - share) * fake).requires_grad_()
    (slope,) = torch.autograd.grad(critic(mixed).sum(), mixed, create_graph=True)
    loss = critic(fake).mean() - critic(real).mean() + 10 * (slope.norm(2, dim=1) - 1).pow(2).mean()
    of_critic.zero_grad()
    loss.backward()
    of_critic.step()
    of_maker.zero_grad()
    made = -critic(maker(torch.randn(6, 4))).mean()
    made.backward()
    of_maker.step()
    tell(loss, made)
tell_all(maker, critic)
""",
    "transforms of torch.func": """
net = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
def loss_of(weights, x, y):
    return (torch.func.functional_call(net, weights, (x,)) - y).pow(2).mean()
class Square(torch.autograd.Function):
    generate_vmap_rule = True
    @staticmethod
    def forward(x): return x * x
    @staticmethod
    def setup_context(context, inputs, output): context.save_for_backward(*inputs)
    @staticmethod
    def backward(context, gradient): return 2 * context.saved_tensors[0] * gradient
for step in range(STEPS):
    x, y = torch.randn(5, 4), torch.randn(5, 1)
    weights = {name: weight.detach() for name, weight in net.named_parameters()}
    each = torch.func.vmap(torch.func.grad(loss_of), in_dims=(None, 0, 0))(weights, x, y)
    more = torch.func.vmap(torch.func.grad(lambda x: Square.apply(x).sum()))(x)
    hessian = torch.func.hessian(lambda x: net(x).sum())(x[0])
    noise = torch.func.vmap(lambda x: x + torch.rand(4), randomness="different")(x)
    _, tangent = torch.func.jvp(net, (x,), (more,))
    for name, weight in net.named_parameters():
        weight.grad = each[name].mean(0)
    optimizer.step()
    tell(more, hessian, noise, tangent)
tell_all(net)
""",
    "a custom function": """
class Clamp(torch.autograd.Function):
    @staticmethod
    def forward(context, x, low):
        context.save_for_backward(x)
        context.low = low
        return x.clamp(min=low)
    @staticmethod
    def backward(context, gradient):
        (x,) = context.saved_tensors
        with torch.enable_grad():
            y = x.detach().requires_grad_()
            (inner,) = torch.autograd.grad((y * y).sum(), y)
        return gradient * (x > context.low) + 0.01 * inner, None
net = nn.Linear(4, 4)
optimizer = torch.optim.Adam(net.parameters())
for step in range(STEPS):
    optimizer.zero_grad()
    loss = Clamp.apply(net(torch.randn(3, 4)), 0.1).sum()
    loss.backward()
    optimizer.step()
    tell(loss)
tell_all(net)
""",
    "packed sequences": """
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence
net, head = nn.LSTM(4, 8, num_layers=2, dropout=0.2, bidirectional=True, batch_first=True), nn.Linear(16, 2)
optimizer = torch.optim.RMSprop([*net.parameters(), *head.parameters()])
for step in range(STEPS):
    lengths = torch.randint(1, 7, (5,))
    packed = pack_padded_sequence(torch.randn(5, 7, 4), lengths, batch_first=True, enforce_sorted=False)
    out, _ = pad_packed_sequence(net(packed)[0], batch_first=True)
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(head(out[:, 0]), torch.randint(0, 2, (5,)))
    loss.backward()
    optimizer.step()
    tell(loss)
tell_all(net, head)
""",
    "sparse embeddings": """
table, head = nn.Embedding(50, 8, sparse=True), nn.Linear(8, 1)
bag = nn.EmbeddingBag(50, 8, sparse=True)
first = torch.optim.SparseAdam([*table.parameters(), *bag.parameters()])
second = torch.optim.Adagrad(head.parameters())
for step in range(2 * STEPS):
    numbers = torch.randint(0, 50, (6, 3))
    loss = head(table(numbers).mean(1) + bag(numbers)).pow(2).mean()
    first.zero_grad()
    second.zero_grad()
    loss.backward()
    first.step()
    second.step()
    tell(loss)
tell_all(table, bag, head)
""",
    "evaluation in inference mode": """
net = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.Linear(8, 1))
optimizer = torch.optim.Adam(net.parameters())
for step in range(STEPS):
    optimizer.zero_grad()
    loss = net(torch.randn(3, 4)).pow(2).mean()
    loss.backward()
    optimizer.step()
    net.eval()
    with torch.inference_mode():
        seen = net(torch.ones(2, 4))
    with torch.no_grad():
        tell(loss, seen, net(torch.ones(2, 4)))
    net.train()
tell_all(net)
""",
    "nested tensors": """
import warnings
warnings.simplefilter("ignore")
net = nn.Linear(4, 4)
optimizer = torch.optim.Adam(net.parameters())
for step in range(STEPS):
    parts = [torch.randn(2, 4), torch.randn(3, 4)]
    optimizer.zero_grad()
    nested = torch.nested.nested_tensor(parts, layout=torch.strided)
    jagged = torch.nested.nested_tensor(parts, layout=torch.jagged)
    loss = net(nested).to_padded_tensor(0.0).pow(2).mean() + net(jagged).values().pow(2).mean()
    loss.backward()
    optimizer.step()
    tell(loss)
tell_all(net)
""",
    "complex numbers and transforms of Fourier": """
weight = nn.Parameter(torch.randn(8, dtype=torch.complex64))
optimizer = torch.optim.Adam([weight])
for step in range(STEPS):
    optimizer.zero_grad()
    loss = (torch.fft.irfft(torch.fft.rfft(torch.randn(5, 14)) * weight, n=14) ** 2).mean()
    loss.backward()
    optimizer.step()
    tell(loss, torch.view_as_real(weight))
tell_all()
""",
    "attention": """
net = nn.TransformerEncoderLayer(16, 4, 32, dropout=0.1, batch_first=True)
optimizer = torch.optim.AdamW(net.parameters())
mask = nn.Transformer.generate_square_subsequent_mask(6)
for step in range(STEPS):
    optimizer.zero_grad()
    loss = net(torch.randn(3, 6, 16), src_mask=mask, is_causal=True).pow(2).mean()
    q = torch.randn(2, 4, 6, 8, dtype=torch.bfloat16, requires_grad=True)
    more = nn.functional.scaled_dot_product_attention(q, q, q, attn_mask=mask.bfloat16(), dropout_p=0.1).float().sum()
    (loss + more).backward()
    optimizer.step()
    net.eval()
    with torch.inference_mode():
        tell(loss, more, q.grad.float(), net(torch.ones(1, 6, 16)))
    net.train()
tell_all(net)
""",
    "operations that are made of others": """
import warnings
warnings.simplefilter("ignore")
library = torch.library.Library("of_this_program", "DEF")
library.define("wave(Tensor x) -> Tensor")
library.impl("wave", lambda x: (x * 2).sin(), "CompositeExplicitAutograd")
library.define("scaled(Tensor x) -> Tensor")
def scaled(x):
    y = x * 1
    y.view(-1).mul_(3)
    return y
library.impl("scaled", scaled, "CompositeExplicitAutograd")
@torch.library.custom_op("of_this_program::product", mutates_args=())
def product(x: torch.Tensor) -> torch.Tensor: return (x @ x.mT).float()
net = nn.Linear(4, 4)
encoder = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval()
optimizer = torch.optim.Adam(net.parameters())
for step in range(STEPS):
    optimizer.zero_grad()
    x = torch.randn(4, 4)
    loss = torch.ops.of_this_program.wave(net(x)).sum() + torch.ops.of_this_program.scaled(net(x)).sum()
    loss.backward()
    optimizer.step()
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        tell(loss, product(x), encoder(torch.randn(1, 4, 8)).float())
    number = torch.complex(torch.randn(3, 2), torch.randn(3, 2))
    tell(torch.view_as_real(torch.linalg.pinv(number)), (number.conj().imag @ x[:2, :2]).abs())
tell_all(net)
""",
    "weights with weight norm, spectral norm and an average": """
from torch.nn.utils import parametrizations
net = nn.Sequential(parametrizations.weight_norm(nn.Linear(4, 8)), parametrizations.spectral_norm(nn.Linear(8, 4)))
average = torch.optim.swa_utils.AveragedModel(net, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.9))
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for step in range(STEPS):
    optimizer.zero_grad()
    loss = net(torch.randn(3, 4)).pow(2).mean()
    loss.backward()
    optimizer.step()
    average.update_parameters(net)
    tell(loss)
tell_all(net, average)
""",
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_numbers_are_those_of_a_bare_run(same, name: str) -> None:
    is_watched = CONVERTS or "inference_mode" not in PROGRAMS[name]
    same(PROGRAMS[name], windows=2 if is_watched else 0)


SCRIPTED = """
import warnings
warnings.simplefilter("ignore")
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(4, 4)
    def forward(self, x):
        for _ in range(3):
            x = torch.tanh(self.inner(x)) * torch.sigmoid(x) + x
        return x
net = torch.jit.script(Net())
traced = torch.jit.trace(nn.Sequential(nn.Linear(4, 4), nn.Tanh()), torch.ones(2, 4))
optimizer = torch.optim.Adam([*net.parameters(), *traced.parameters()])
for step in range(STEPS):
    optimizer.zero_grad()
    loss = traced(net(torch.randn(6, 4))).pow(2).mean()
    loss.backward()
    optimizer.step()
    tell(loss)
tell_all(net, traced)
"""


def test_a_scripted_module_trains_as_in_a_bare_run(same) -> None:
    same(SCRIPTED, windows=0)
