# expect: repeated_work line guilty
# held out
# options: --inspect
"""TD3 on a toy continuous-control task (batched point mass)."""
import argparse
import copy

import torch
import torch.nn as nn
import torch.nn.functional as F


def mlp(sizes):
    layers = []
    for i, (a, b) in enumerate(zip(sizes, sizes[1:])):
        layers.append(nn.Linear(a, b))
        if i < len(sizes) - 2:
            layers.append(nn.ReLU())
    return nn.Sequential(*layers)


class Actor(nn.Module):
    def __init__(self, obs_dim, act_dim, hidden):
        super().__init__()
        self.pi = mlp([obs_dim, hidden, act_dim])

    def forward(self, obs):
        return torch.tanh(self.pi(obs))


class TwinCritic(nn.Module):
    def __init__(self, obs_dim, act_dim, hidden):
        super().__init__()
        self.q1 = mlp([obs_dim + act_dim, hidden, hidden, 1])
        self.q2 = mlp([obs_dim + act_dim, hidden, hidden, 1])

    def forward(self, obs, act):
        x = torch.cat([obs, act], 1)
        return self.q1(x).squeeze(1), self.q2(x).squeeze(1)

    def first(self, obs, act):
        return self.q1(torch.cat([obs, act], 1)).squeeze(1)


class ReplayBuffer:
    def __init__(self, capacity, obs_dim, act_dim):
        self.obs = torch.zeros(capacity, obs_dim)
        self.act = torch.zeros(capacity, act_dim)
        self.rew = torch.zeros(capacity)
        self.nxt = torch.zeros(capacity, obs_dim)
        self.size, self.ptr, self.capacity = 0, 0, capacity

    def add(self, obs, act, rew, nxt):
        n = len(obs)
        idx = (self.ptr + torch.arange(n)) % self.capacity
        self.obs[idx], self.act[idx], self.rew[idx], self.nxt[idx] = obs, act, rew, nxt
        self.ptr = (self.ptr + n) % self.capacity
        self.size = min(self.size + n, self.capacity)

    def sample(self, batch):
        idx = torch.randint(self.size, (batch,))
        return self.obs[idx], self.act[idx], self.rew[idx], self.nxt[idx]


class PointMass:
    def __init__(self, n_envs, dim):
        self.n, self.dim = n_envs, dim
        self.state = torch.randn(n_envs, 2 * dim)

    def step(self, act):
        pos, vel = self.state.split(self.dim, 1)
        vel = 0.8 * vel + 0.2 * act
        pos = (pos + 0.2 * vel).clamp(-3, 3)
        self.state = torch.cat([pos, vel], 1)
        return self.state, -pos.square().sum(1) - 0.05 * act.square().sum(1)


class TD3:
    def __init__(self, obs_dim, act_dim, args):
        self.actor = Actor(obs_dim, act_dim, args.hidden)
        self.critic = TwinCritic(obs_dim, act_dim, args.hidden)
        self.actor_target = copy.deepcopy(self.actor).requires_grad_(False)
        self.critic_target = copy.deepcopy(self.critic).requires_grad_(False)
        self.actor_opt = torch.optim.Adam(self.actor.parameters(), lr=args.lr)
        self.critic_opt = torch.optim.Adam(self.critic.parameters(), lr=args.lr)
        self.args = args
        self.updates = 0

    def bellman_target(self, rew, nxt):
        with torch.no_grad():
            pi = self.actor_target(nxt)
            noise = (torch.randn_like(pi) * 0.2).clamp(-0.5, 0.5)
            act = (pi + noise).clamp(-1, 1)
            q1 = self.critic_target(nxt, act)[0]  # guilty
            # fixed: q1, q2 = self.critic_target(nxt, act)
            q2 = self.critic_target(nxt, act)[1]  # guilty
            # fixed:
            return rew + self.args.gamma * torch.min(q1, q2)

    def update(self, batch):
        obs, act, rew, nxt = batch
        target = self.bellman_target(rew, nxt)
        q1, q2 = self.critic(obs, act)
        critic_loss = F.mse_loss(q1, target) + F.mse_loss(q2, target)
        self.critic_opt.zero_grad()
        critic_loss.backward()
        self.critic_opt.step()
        self.updates += 1
        if self.updates % self.args.policy_delay == 0:
            self.critic.requires_grad_(False)
            actor_loss = -self.critic.first(obs, self.actor(obs)).mean()
            self.actor_opt.zero_grad()
            actor_loss.backward()
            self.critic.requires_grad_(True)
            self.actor_opt.step()
            self.soft_update(self.actor, self.actor_target)
            self.soft_update(self.critic, self.critic_target)
        return critic_loss

    @torch.no_grad()
    def soft_update(self, net, target):
        for p, t in zip(net.parameters(), target.parameters()):
            t.lerp_(p, self.args.tau)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=120)
    ap.add_argument("--envs", type=int, default=32)
    ap.add_argument("--batch", type=int, default=256)
    ap.add_argument("--hidden", type=int, default=256)
    ap.add_argument("--gamma", type=float, default=0.9)
    ap.add_argument("--tau", type=float, default=0.01)
    ap.add_argument("--lr", type=float, default=1e-3)
    ap.add_argument("--policy_delay", type=int, default=2)
    ap.add_argument("--seed", type=int, default=0)
    args = ap.parse_args()
    torch.manual_seed(args.seed)
    env = PointMass(args.envs, 4)
    agent = TD3(8, 4, args)
    buf = ReplayBuffer(20000, 8, 4)
    for _ in range(20):
        obs, act = env.state, torch.rand(args.envs, 4) * 2 - 1
        nxt, rew = env.step(act)
        buf.add(obs, act, rew, nxt)
    for step in range(1, args.steps + 1):
        obs = env.state
        with torch.no_grad():
            act = (agent.actor(obs) + 0.1 * torch.randn(args.envs, 4)).clamp(-1, 1)
        nxt, rew = env.step(act)
        buf.add(obs, act, rew, nxt)
        loss = agent.update(buf.sample(args.batch))
        if step % 20 == 0:
            print(f"step {step} critic loss {loss.item():.4f} reward {rew.mean().item():.3f}")


if __name__ == "__main__":
    main()
