# expect: full_sort line guilty
# options: --inspect
"""Dense retrieval: the hardest negatives of each question are the most similar answers of a large memory."""
import torch
import torch.nn as nn
import torch.nn.functional as F

WIDTH, MEMORY, HARD = 48, 3000, 16


class Tower(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(features, 96), nn.GELU(), nn.Linear(96, WIDTH))

    def forward(self, x):
        return F.normalize(self.layers(x), dim=-1)


def hardest(questions, memory):
    scores = questions @ memory.t()
    best, _ = scores.sort(dim=1, descending=True)  # guilty
    # fixed: best, _ = scores.topk(HARD, dim=1)
    return best[:, :HARD]


def pairs(count, generator):
    topics = torch.randn(40, 64, generator=generator)
    topic = torch.randint(40, (count,), generator=generator)
    questions = topics[topic] + 0.7 * torch.randn(count, 64, generator=generator)
    answers = topics[topic] + 0.7 * torch.randn(count, 64, generator=generator)
    return questions, answers


torch.manual_seed(80)
questions, answers = pairs(2000, torch.Generator().manual_seed(81))
ask, answer = Tower(64), Tower(64)
optimizer = torch.optim.AdamW([*ask.parameters(), *answer.parameters()], lr=1e-3)
memory = F.normalize(torch.randn(MEMORY, WIDTH), dim=-1)
for step in range(100):
    chosen = torch.randint(len(questions), (96,))
    mine, theirs = ask(questions[chosen]), answer(answers[chosen])
    negatives = hardest(mine, memory)  # guilty
    logits = torch.cat([(mine * theirs).sum(1, keepdim=True), negatives], 1) / 0.1
    loss = F.cross_entropy(logits, torch.zeros(len(chosen), dtype=torch.long))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    memory = torch.cat([memory[len(theirs) :], theirs.detach()])
    if step % 20 == 19:
        print(f"step {step + 1}: loss {loss.item():.4f}")
