# expect: healthy
# options: --inspect
"""Deterministic policy gradient on a logged reaching task: twin critics, target networks that follow slowly."""
import copy

import torch
import torch.nn as nn
import torch.nn.functional as F

STATE, ACTION, GAMMA = 12, 4, 0.97


def mlp(inputs, outputs, width=160):
    return nn.Sequential(nn.Linear(inputs, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, outputs))


class Critics(nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.two = mlp(STATE + ACTION, 1), mlp(STATE + ACTION, 1)

    def forward(self, state, action):
        both = torch.cat([state, action], 1)
        return self.one(both), self.two(both)


class Replay:
    def __init__(self, count):
        self.state = torch.randn(count, STATE)
        self.action = torch.rand(count, ACTION) * 2 - 1
        push = torch.randn(ACTION, STATE) * 0.3
        self.after = 0.9 * self.state + self.action @ push + 0.05 * torch.randn(count, STATE)
        self.reward = -self.after.norm(dim=1, keepdim=True) / STATE**0.5
        self.over = (self.after.norm(dim=1, keepdim=True) < 2.0).float()

    def sample(self, size):
        rows = torch.randint(len(self.state), (size,))
        return (part[rows] for part in (self.state, self.action, self.reward, self.after, self.over))


def follow(target, source, tau=0.01):
    with torch.no_grad():
        torch._foreach_lerp_(list(target.parameters()), list(source.parameters()), tau)


def main(updates=50, batch=192):
    torch.manual_seed(3)
    replay = Replay(8000)
    actor, critics = nn.Sequential(mlp(STATE, ACTION), nn.Tanh()), Critics()
    target_actor, target_critics = (copy.deepcopy(each).requires_grad_(False) for each in (actor, critics))
    actor_optimizer = torch.optim.Adam(actor.parameters(), lr=1e-3, fused=True)
    critic_optimizer = torch.optim.Adam(critics.parameters(), lr=1e-3, fused=True)
    for update in range(updates):
        state, action, reward, after, over = replay.sample(batch)
        with torch.no_grad():
            noise = (0.2 * torch.randn(batch, ACTION)).clamp(-0.5, 0.5)
            following = (target_actor(after) + noise).clamp(-1, 1)
            goal = reward + GAMMA * (1 - over) * torch.minimum(*target_critics(after, following))
        loss = sum(F.mse_loss(guess, goal) for guess in critics(state, action))
        critic_optimizer.zero_grad()
        loss.backward()
        critic_optimizer.step()

        critics.requires_grad_(False)
        policy_loss = -critics.one(torch.cat([state, actor(state)], 1)).mean()
        actor_optimizer.zero_grad()
        policy_loss.backward()
        actor_optimizer.step()
        critics.requires_grad_(True)

        follow(target_critics, critics)
        follow(target_actor, actor)
        if update % 10 == 0:
            print(f"update {update} critic {loss.item():.4f} actor {policy_loss.item():.4f}")


if __name__ == "__main__":
    main()
