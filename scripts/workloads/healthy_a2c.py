# expect: healthy
# held out
"""Advantage actor-critic on many small navigation worlds that are stepped together in numpy."""
import csv
import os
import tempfile
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F


class PointWorlds:
    """A point has to be driven to a goal on the plane; 8 headings to choose from."""

    def __init__(self, n, seed=0):
        self.rng = np.random.default_rng(seed)
        self.n = n
        ang = np.arange(8) * np.pi / 4
        self.moves = np.stack([np.cos(ang), np.sin(ang)], 1).astype(np.float32) * 0.1
        self.pos = self.rng.uniform(-1, 1, (n, 2)).astype(np.float32)
        self.goal = self.rng.uniform(-1, 1, (n, 2)).astype(np.float32)

    def observe(self):
        return torch.from_numpy(np.concatenate([self.pos, self.goal, self.goal - self.pos], 1))

    def step(self, actions):
        before = np.linalg.norm(self.goal - self.pos, axis=1)
        self.pos = np.clip(self.pos + self.moves[actions], -1.5, 1.5)
        after = np.linalg.norm(self.goal - self.pos, axis=1)
        done = after < 0.1
        reward = before - after + done
        k = int(done.sum())
        if k:
            self.pos[done] = self.rng.uniform(-1, 1, (k, 2))
            self.goal[done] = self.rng.uniform(-1, 1, (k, 2))
        return torch.from_numpy(reward.astype(np.float32)), torch.from_numpy(done.astype(np.float32))


class ActorCritic(nn.Module):
    def __init__(self, width=256):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(6, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh(),
                                   nn.Linear(width, width), nn.Tanh())
        self.pi, self.v = nn.Linear(width, 8), nn.Linear(width, 1)

    def forward(self, obs):
        h = self.trunk(obs)
        return self.pi(h), self.v(h).squeeze(-1)


def collect(worlds, net, horizon):
    obs_l, act_l, rew_l, done_l = [], [], [], []
    with torch.no_grad():
        for _ in range(horizon):
            obs = worlds.observe()
            logits, _ = net(obs)
            act = torch.multinomial(logits.softmax(1), 1).squeeze(1)
            rew, done = worlds.step(act.numpy())
            for store, item in zip((obs_l, act_l, rew_l, done_l), (obs, act, rew, done)):
                store.append(item)
        last = net(worlds.observe())[1]
    return torch.stack(obs_l), torch.stack(act_l), torch.stack(rew_l), torch.stack(done_l), last


def returns(rew, done, last, gamma=0.95):
    out, acc = torch.empty_like(rew), last
    for t in reversed(range(len(rew))):
        acc = rew[t] + gamma * (1 - done[t]) * acc
        out[t] = acc
    return out


def main(updates=300, n_worlds=256, horizon=10):
    torch.manual_seed(0)
    worlds, net = PointWorlds(n_worlds), ActorCritic()
    opt = torch.optim.RMSprop(net.parameters(), lr=5e-4)
    log = open(os.path.join(tempfile.mkdtemp(prefix="a2c_"), "log.csv"), "w", newline="")
    writer = csv.writer(log)
    for update in range(updates):
        obs, act, rew, done, last = collect(worlds, net, horizon)
        target = returns(rew, done, last).flatten()
        logits, value = net(obs.flatten(0, 1))
        logp = F.log_softmax(logits, 1)
        adv = (target - value).detach()
        policy = -(logp.gather(1, act.flatten()[:, None]).squeeze(1) * adv).mean()
        entropy = -(logp.exp() * logp).sum(1).mean()
        loss = policy + 0.5 * F.mse_loss(value, target) - 0.01 * entropy
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 0.5)
        opt.step()
        writer.writerow([update, time.time(), loss.item(), entropy.item(), rew.mean().item()])
        if update % 50 == 0:
            log.flush()
            print(f"update {update} reward {rew.mean():.4f} entropy {entropy.item():.3f}")
    log.close()


if __name__ == "__main__":
    main()
