# expect: distribution_checks line guilty
# also: python_overhead
"""REINFORCE on a pole that is balanced on a cart; the physics are a few lines of Python."""
import math
import random

import torch
import torch.nn as nn
from torch.distributions import Categorical


class Pole:
    def reset(self):
        self.state = [random.uniform(-0.05, 0.05) for _ in range(4)]
        self.steps = 0
        return self.state

    def step(self, push):
        x, speed, angle, turn = self.state
        force = 10.0 if push else -10.0
        sine, cosine = math.sin(angle), math.cos(angle)
        pull = (force + 0.05 * turn * turn * sine) / 1.1
        swing = (9.8 * sine - cosine * pull) / (0.5 * (4.0 / 3.0 - 0.1 * cosine * cosine / 1.1))
        drive = pull - 0.05 * swing * cosine / 1.1
        self.state = [x + 0.02 * speed, speed + 0.02 * drive, angle + 0.02 * turn, turn + 0.02 * swing]
        self.steps += 1
        return self.state, abs(self.state[0]) > 2.4 or abs(self.state[2]) > 0.21 or self.steps == 200


class Agent:
    def __init__(self):
        self.policy = nn.Sequential(nn.Linear(4, 64), nn.ReLU(), nn.Linear(64, 2))
        self.optimizer = torch.optim.Adam(self.policy.parameters(), lr=3e-3, fused=True)

    def choose(self, states):
        choice = Categorical(logits=self.policy(states))  # guilty
        # fixed: choice = Categorical(logits=self.policy(states), validate_args=False)
        pushes = choice.sample()
        return pushes, choice.log_prob(pushes)

    def learn(self, scores, returns):
        returns = torch.tensor(returns)
        returns = (returns - returns.mean()) / (returns.std() + 1e-6)
        loss = -(torch.cat(scores) * returns).sum()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()


random.seed(0)
torch.manual_seed(0)
torch.set_num_threads(1)
pole, agent = Pole(), Agent()
for episode in range(400):
    state, done, scores = pole.reset(), False, []
    while not done:
        pushes, score = agent.choose(torch.tensor([state]))
        state, done = pole.step(pushes.item())
        scores.append(score)
    agent.learn(scores, [float(len(scores) - number) for number in range(len(scores))])
    if episode % 100 == 99:
        print(f"episode {episode + 1}: {len(scores)} steps")
