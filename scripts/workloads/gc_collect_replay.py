# expect: gc_pause line guilty
# held out
"""DQN on a hand-written cart-pole. Replay of plain transition tuples, target network."""
import collections
import gc
import math
import random

import numpy as np
import torch
import torch.nn as nn

Transition = collections.namedtuple("Transition", "state action reward nxt done")


class CartPole:
    def reset(self):
        self.s = [random.uniform(-0.05, 0.05) for _ in range(4)]
        self.t = 0
        return list(self.s)

    def step(self, action):
        x, v, th, om = self.s
        force = 10.0 if action else -10.0
        c, s = math.cos(th), math.sin(th)
        tmp = (force + 0.05 * om * om * s) / 1.1
        acc_th = (9.8 * s - c * tmp) / (0.5 * (4 / 3 - 0.1 * c * c / 1.1))
        acc = tmp - 0.05 * acc_th * c / 1.1
        self.s = [x + 0.02 * v, v + 0.02 * acc, th + 0.02 * om, om + 0.02 * acc_th]
        self.t += 1
        done = abs(self.s[0]) > 2.4 or abs(self.s[2]) > 0.21 or self.t >= 200
        return list(self.s), 1.0, done


class Replay:
    def __init__(self, capacity):
        self.items, self.capacity, self.at = [], capacity, 0

    def push(self, tr):
        if len(self.items) < self.capacity:
            self.items.append(tr)
        else:
            self.items[self.at] = tr
        self.at = (self.at + 1) % self.capacity

    def sample(self, n):
        s, a, r, nx, d = zip(*random.sample(self.items, n))
        to = lambda v: torch.from_numpy(np.asarray(v, dtype=np.float32))
        return to(s), torch.tensor(a), to(r), to(nx), to(d)


def qnet():
    return nn.Sequential(nn.Linear(4, 384), nn.ReLU(), nn.Linear(384, 384), nn.ReLU(),
                         nn.Linear(384, 384), nn.ReLU(), nn.Linear(384, 2))


def free_memory():
    # the cluster kills jobs above 4 GB
    gc.collect()  # guilty
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def main(updates=420, batch=256, gamma=0.99, warmup=20000):
    random.seed(0)
    torch.manual_seed(0)
    env, replay = CartPole(), Replay(50000)
    q, target = qnet(), qnet()
    target.load_state_dict(q.state_dict())
    opt = torch.optim.Adam(q.parameters(), lr=5e-4)
    state, returns, ret = env.reset(), collections.deque([0.0], maxlen=20), 0.0
    for frame in range(warmup + updates * 4):
        eps = 1.0 if frame < warmup else max(0.05, 1 - (frame - warmup) / 1000)
        if random.random() < eps:
            action = random.randrange(2)
        else:
            with torch.no_grad():
                action = int(q(torch.tensor(state).unsqueeze(0)).argmax())
        nxt, reward, done = env.step(action)
        replay.push(Transition(state, action, reward, nxt, done))
        ret += reward
        state = env.reset() if done else nxt
        if done:
            returns.append(ret)
            ret = 0.0
        if frame < warmup or frame % 4:
            continue
        s, a, r, nx, d = replay.sample(batch)
        with torch.no_grad():
            y = r + gamma * (1 - d) * target(nx).max(1).values
        loss = nn.functional.smooth_l1_loss(q(s).gather(1, a[:, None]).squeeze(1), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        if frame % 32 == 0:
            free_memory()  # guilty
            # fixed: pass
        if frame % 400 == 0:
            target.load_state_dict(q.state_dict())
            print(f"frame {frame} loss {loss.item():.4f} return {np.mean(returns):.1f}")


if __name__ == "__main__":
    main()
