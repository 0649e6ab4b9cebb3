# expect: repeated_work line guilty
# options: --inspect
# also: repeated_backward
"""Offline advantage-weighted regression on logged transitions of a grid game; one encoder for the actor and the critic."""
import torch
import torch.nn as nn
import torch.nn.functional as F

ACTIONS, SIZE = 5, 10


class GridLog:
    """Transitions that a scripted player left behind: a hunter, a prey and walls as three planes."""

    def __init__(self, count, seed):
        g = torch.Generator().manual_seed(seed)
        self.planes = torch.zeros(count, 3, SIZE, SIZE)
        hunter = torch.randint(SIZE, (count, 2), generator=g)
        prey = torch.randint(SIZE, (count, 2), generator=g)
        rows = torch.arange(count)
        self.planes[rows, 0, hunter[:, 0], hunter[:, 1]] = 1
        self.planes[rows, 1, prey[:, 0], prey[:, 1]] = 1
        self.planes[:, 2] = (torch.rand(count, SIZE, SIZE, generator=g) < 0.1).float()
        way = prey - hunter
        best = torch.where(way[:, 0].abs() > way[:, 1].abs(), (way[:, 0] > 0).long(), 2 + (way[:, 1] > 0).long())
        noise = torch.randint(ACTIONS, (count,), generator=g)
        self.actions = torch.where(torch.rand(count, generator=g) < 0.5, best, noise)
        self.returns = (self.actions == best).float() - way.abs().sum(1) / (2 * SIZE)

    def sample(self, size):
        rows = torch.randint(len(self.actions), (size,))
        return self.planes[rows], self.actions[rows], self.returns[rows]


class Agent(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Conv2d(3, 24, 3, padding=1), nn.ReLU(), nn.Conv2d(24, 32, 3, stride=2, padding=1), nn.ReLU(),
            nn.Conv2d(32, 32, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(32 * 25, 128), nn.ReLU()
        )
        self.actor = nn.Linear(128, ACTIONS)
        self.critic = nn.Linear(128, 1)

    def forward(self, planes):
        state = self.encoder(planes)
        return torch.distributions.Categorical(logits=self.actor(state)), self.critic(state).squeeze(1)


def train(updates=110, batch=64, temperature=0.5):
    log = GridLog(6000, seed=1)
    agent = Agent()
    optimizer = torch.optim.SGD(agent.parameters(), lr=0.03, momentum=0.9)
    for update in range(1, updates + 1):
        planes, actions, returns = log.sample(batch)
        policy, value = agent(planes)
        advantage = returns - value.detach()
        weight = (advantage / temperature).exp().clamp(max=20)
        actor_loss = -(policy.log_prob(actions) * weight).mean() - 0.01 * policy.entropy().mean()
        critic_loss = F.mse_loss(value, returns)
        optimizer.zero_grad()
        actor_loss.backward(retain_graph=True)  # guilty
        # fixed: pass
        critic_loss.backward()  # guilty
        # fixed: (actor_loss + critic_loss).backward()
        nn.utils.clip_grad_norm_(agent.parameters(), 5.0)
        optimizer.step()
        if update % 10 == 0:
            print(f"update {update} actor {actor_loss.item():.5f} critic {critic_loss.item():.5f}")


if __name__ == "__main__":
    torch.manual_seed(9)
    train()
