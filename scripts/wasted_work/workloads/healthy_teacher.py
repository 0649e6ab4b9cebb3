# expect: healthy
# options: --inspect
"""Distil a wide network for key words into a narrow one; the teacher sees each freshly augmented batch, without gradients."""
import torch
from torch import nn
from torch.nn import functional as F

BANDS, FRAMES, WORDS = 24, 48, 10


def network(width):
    return nn.Sequential(
        nn.Conv1d(BANDS, width, 5, 2, 2), nn.GroupNorm(2, width), nn.ReLU(), nn.Conv1d(width, width, 3, 1, 1), nn.GroupNorm(2, width), nn.ReLU(),
        nn.Conv1d(width, 2 * width, 3, 2, 1), nn.ReLU(), nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(2 * width, WORDS)
    )


def augment(sounds):
    sounds = sounds.roll(int(torch.randint(-5, 6, ())), 2)
    sounds = sounds * (0.8 + 0.4 * torch.rand(len(sounds), 1, 1)) + 0.2 * torch.randn(sounds.shape)
    start = int(torch.randint(FRAMES - 6, ()))
    sounds[:, :, start:start + 6] = 0
    return sounds


def loss_of(student, teacher, words, temperature=3.0):
    soft = F.kl_div(F.log_softmax(student / temperature, 1), F.softmax(teacher / temperature, 1), reduction="batchmean")
    return 0.7 * temperature**2 * soft + 0.3 * F.cross_entropy(student, words)


torch.manual_seed(44)
words = torch.randint(WORDS, (1600,))
sounds = torch.randn(WORDS, BANDS, FRAMES)[words] + torch.randn(1600, BANDS, FRAMES)
teacher, student = network(96).eval().requires_grad_(False), network(48)
optimizer = torch.optim.SGD(student.parameters(), lr=0.03, momentum=0.9, nesterov=True)
for epoch in range(4):
    total = 0.0
    for rows in torch.randperm(1600).split(64):
        batch = augment(sounds[rows])
        with torch.no_grad():
            guide = teacher(batch)
        loss = loss_of(student(batch), guide, words[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item()
    print(f"epoch {epoch} loss {total / 25:.4f}")
