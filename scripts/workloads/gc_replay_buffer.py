# expect: gc_pause
# also: slow_steps python_overhead
# held out
"""Deep Q-learning with many environments at once; the replay buffer keeps an object for each transition."""
import collections
import random

# fixed: import gc; gc.disable()
import torch
from torch import nn

ENVIRONMENTS, STATE, ACTIONS = 768, 6, 4


class Transition:
    def __init__(self, state, action, reward, next_state):
        self.state = state
        self.action = action
        self.reward = reward
        self.next_state = next_state


class ReplayBuffer:
    def __init__(self, capacity):
        self.memory = collections.deque(maxlen=capacity)

    def push(self, states, actions, rewards, next_states):
        self.memory.extend(map(Transition, states, actions, rewards, next_states))

    def sample(self, size):
        chosen = random.choices(self.recent, k=size)
        return (
            torch.tensor([transition.state for transition in chosen]),
            torch.tensor([transition.action for transition in chosen]),
            torch.tensor([transition.reward for transition in chosen]),
            torch.tensor([transition.next_state for transition in chosen]),
        )

    def refresh(self):
        self.recent = list(self.memory)


class PointMass:
    """Points on a plane that are pushed in four directions and want to be in the middle."""

    push = torch.tensor([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, -1.0]])

    def __init__(self, count):
        self.state = torch.randn(count, STATE)

    def step(self, actions):
        state = self.state.clone()
        state[:, 2:4] = 0.9 * state[:, 2:4] + 0.1 * self.push[actions]
        state[:, :2] += 0.1 * state[:, 2:4]
        self.state = state
        return state, -state[:, :2].norm(dim=1)


def main():
    random.seed(1)
    torch.manual_seed(1)
    env = PointMass(ENVIRONMENTS)
    buffer = ReplayBuffer(200_000)
    policy = nn.Sequential(nn.Linear(STATE, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, ACTIONS))
    target = nn.Sequential(nn.Linear(STATE, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, ACTIONS))
    target.load_state_dict(policy.state_dict())
    optimizer = torch.optim.RMSprop(policy.parameters(), lr=1e-4)

    def act():
        with torch.no_grad():
            greedy = policy(env.state).argmax(dim=1)
        explore = torch.rand(ENVIRONMENTS) < 0.1
        return torch.where(explore, torch.randint(0, ACTIONS, (ENVIRONMENTS,)), greedy)

    for step in range(1300):
        state, actions = env.state, act()
        next_state, reward = env.step(actions)
        buffer.push(state.tolist(), actions.tolist(), reward.tolist(), next_state.tolist())
        if step < 300:
            continue
        if step % 100 == 0:
            buffer.refresh()
            target.load_state_dict(policy.state_dict())
        states, taken, rewards, following = buffer.sample(128)
        with torch.no_grad():
            wanted = rewards + 0.98 * target(following).max(dim=1).values
        value = policy(states).gather(1, taken[:, None]).squeeze(1)
        loss = nn.functional.smooth_l1_loss(value, wanted)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print("loss", round(loss.item(), 4), "distance", round(-reward.mean().item(), 3))


main()
