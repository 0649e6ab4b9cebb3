"""A simulation of a training loop, its DataLoader workers and the cores that they share.

A discrete-event simulation without random numbers. A task needs cores for an amount of work, or waits without needing
one. All tasks that need cores get the same share of them, as under the Linux scheduler. The queue is that of torch
(torch/utils/data/dataloader.py): ``prefetch`` requests per worker at the start of an epoch, assigned in turn, a new one
for each batch that was received, and batches are delivered in order.
"""

from __future__ import annotations

from functools import lru_cache
from heapq import heappop, heappush

from msgspec import Struct


class Cores(Struct, frozen=True):
    """The cores that a training and its workers share."""

    count: float | None
    """None for unknown: each task has a core."""
    pair_speed: float = 1.0
    """The speed of each of two virtual cores while both are busy; 0.5 if they are threads of one core that gain nothing
    from each other."""
    others: float = 0.0
    """Tasks of other programs that always need a core."""

    def speed(self, tasks: float) -> float:
        """Return how fast each task runs, from 0 to 1, if so many need a core at the same time."""
        if self.count is None or tasks <= 0.0:
            return 1.0
        return min(1.0, self.count / (tasks + self.others)) * self.shared_speed(tasks)

    def shared_speed(self, tasks: float) -> float:
        """Return how fast a core runs while so many tasks need one, because of its neighbour."""
        if self.count is None or tasks <= 0.0:
            return 1.0
        busy = min(tasks + self.others, self.count)
        # The kernel first uses cores whose neighbour is idle.
        paired = min(1.0, max(0.0, 2.0 * busy - max(self.count, 2.0)) / busy)
        return 1.0 - paired * (1.0 - self.pair_speed)


class Load(Struct, frozen=True):
    """The work of a training loop, batch by batch; times in nanoseconds on a core of its own.

    The sequences are repeated as often as needed.
    """

    making: tuple[float, ...]
    """Making each batch, in order."""
    using: tuple[float, ...]
    """The step between receiving a batch and requesting the next."""
    making_cpu: float
    """The share of ``making`` that needs a core; the rest are waits, for a disk or a server."""
    width: float
    """How many cores ``using`` needs, as a mean: less than 1 if it waits, more if it has several threads."""
    receive_ns: float
    """Receiving a batch from a worker, on the training thread."""
    send_ns: float
    """Sending it, in the worker."""
    reply_ns: float
    """How long a worker's other threads wait for its interpreter lock (GIL) while it makes a batch. They send the batch
    and, when the training maps it, its memory."""
    epoch: int
    """Batches per epoch: the first batch of each is not prefetched."""
    parallel_waits: int | None = None
    """How many batches the disk or server serves at once while workers wait for it; None for all."""


class Simulated(Struct, frozen=True):
    """The simulated loop; times in nanoseconds, means per batch."""

    batch_ns: float
    """From one batch to the next, with the start of the epochs."""
    wait_ns: float
    """Part of it: the training waits for a batch that is not ready."""
    received_ns: float
    """Part of it: receiving batches."""
    running: float
    """Tasks that need a core, as a mean over time: compute threads and workers that do not wait."""
    workers_running: float
    """Part of it: workers."""
    workers_idle: float
    """The share of their time in which workers wait for requests."""


RECEIVE_NS, RECEIVE_NS_PER_BYTE = 400_000.0, 0.15
SEND_NS, SEND_NS_PER_BYTE = 450_000.0, 0.85
"""CPU time of receiving a batch from a worker, and of sending it: queue, pickling, shared memory. Measured with torch
2.13 for batches of 2 KiB to 12 MiB."""

MAX_BATCHES = 96
"""Batches that are simulated."""


@lru_cache(maxsize=512)
def simulate(load: Load, cores: Cores, workers: int, prefetch: int = 2, batches: int = 0) -> Simulated:
    """Return the loop with so many workers, 0 for none, and so many batches of queue for each.

    Simulates ``batches``, by default an epoch of at most MAX_BATCHES. Raises ValueError without times.
    """
    if not load.making or not load.using:
        raise ValueError("no times of making or using batches")
    count = batches or max(1, min(load.epoch, MAX_BATCHES))
    return _Loop(load, cores, workers, max(1, prefetch), count).run()


TRAINING = -1
"""The number of the training thread among the tasks; workers are counted from 0."""


class _Loop:
    """The state of a simulated epoch.

    All tasks on cores run at the same speed, so that one common clock of work is enough: a task ends when this clock
    has moved by its work.
    """

    def __init__(self, load: Load, cores: Cores, workers: int, prefetch: int, count: int) -> None:
        self.load, self.cores, self.workers, self.count = load, cores, workers, count
        self.now = self.work = self.tasks = 0.0
        self.on_cores: list[tuple[float, int, float]] = []
        """When each task ends on the clock of work, whose it is, and how many cores it needs."""
        self.waiting: list[tuple[float, int]] = []
        """When each wait ends, and whose it is; numbers after those of the workers are batches that are sent."""
        # In the middle of an epoch the workers go on; at its end they have nothing to do.
        self.last = count if count >= load.epoch else count + workers * prefetch
        self.requested = min(self.last, workers * prefetch)
        self.made = [False] * self.last
        self.served = 0
        self.queued: list[int] = []
        """Workers that wait to be served, in order."""
        self.next = list(range(workers))
        """The next batch of each worker."""
        self.idle = [True] * workers
        self.batch = 0
        """The next batch that the training uses."""
        self.state = "request"
        self.wait_since = 0.0
        self.first_ns = self.wait_ns = self.received_ns = 0.0
        self.area = self.worker_area = self.idle_area = 0.0
        self.workers_on_cores = 0

    def run(self) -> Simulated:
        """Simulate until the training has used its batches."""
        self._assign()
        self._train()
        while self.batch < self.count:
            self._advance()
        # The start of an epoch counts once per epoch, however many of its batches were simulated.
        whole = self.now - self.first_ns
        each = max(self.count, self.load.epoch)
        return Simulated(
            batch_ns=whole / self.count + self.first_ns / each,
            wait_ns=self.wait_ns / self.count + self.first_ns / each,
            received_ns=self.received_ns / self.count,
            running=self.area / self.now if self.now else 0.0,
            workers_running=self.worker_area / self.now if self.now else 0.0,
            workers_idle=self.idle_area / (self.now * self.workers) if self.workers and self.now else 0.0,
        )

    def _advance(self) -> None:
        """Move to the next end of a task or a wait."""
        speed = self.cores.speed(self.tasks)
        by_work = self.now + (self.on_cores[0][0] - self.work) / speed if self.on_cores else float("inf")
        by_time = self.waiting[0][0] if self.waiting else float("inf")
        then = min(by_work, by_time)
        took = then - self.now
        self.area += took * self.tasks
        self.worker_area += took * self.workers_on_cores
        self.idle_area += took * sum(self.idle)
        self.now = then
        self.work += took * speed
        if by_time <= by_work:
            _, who = heappop(self.waiting)
            self._wait_ended(who)
        else:
            self.work, who, width = heappop(self.on_cores)
            self.tasks -= width
            self.workers_on_cores -= who != TRAINING
            self._work_ended(who)

    def _compute(self, who: int, work_ns: float, width: float) -> None:
        """Put a task on the cores."""
        heappush(self.on_cores, (self.work + work_ns, who, width))
        self.tasks += width
        self.workers_on_cores += who != TRAINING

    def _assign(self) -> None:
        """Let idle workers start on their next requested batch."""
        for who in range(self.workers):
            if self.idle[who] and self.next[who] < self.requested:
                self.idle[who] = False
                self.queued.append(who)
        most = self.workers if self.load.parallel_waits is None else self.load.parallel_waits
        while self.queued and self.served < most:
            self.served += 1
            who = self.queued.pop(0)
            self._pause(who, self.next[who])

    def _pause(self, who: int, batch: int) -> None:
        """Do the part of making a batch that needs no core."""
        heappush(self.waiting, (self.now + self._making(batch) * (1.0 - self.load.making_cpu), who))

    def _making(self, batch: int) -> float:
        return self.load.making[batch % len(self.load.making)]

    def _wait_ended(self, who: int) -> None:
        """Go on with what follows a wait: the part of making a batch that needs a core, or receiving it."""
        if who >= self.workers:
            self.made[who - self.workers] = True
            if self.state == "request":
                self._train()
            return
        if who == TRAINING and self.state == "receive":
            self._compute(TRAINING, self.load.receive_ns, 1.0)
            return
        batch = self.batch if who == TRAINING else self.next[who]
        send = 0.0 if who == TRAINING else self.load.send_ns
        self._compute(who, self._making(batch) * self.load.making_cpu + send, 1.0)
        if who != TRAINING:
            self.served -= 1
            self._assign()

    def _work_ended(self, who: int) -> None:
        """Go on with what follows the work of a task."""
        if who != TRAINING:
            batch = self.next[who]
            self.next[who] += self.workers
            self.idle[who] = True
            self._assign()
            # An idle worker sends at once.
            heappush(self.waiting, (self.now + self._reply_ns(who), self.workers + batch))
        elif self.state == "receive":
            self.received_ns += self.now - self.wait_since
            self.requested = min(self.last, self.requested + 1)
            self._assign()
            self._use()
        elif self.state == "make":
            self.wait_ns += self.now - self.wait_since
            self._use()
        else:
            self.batch += 1
            self.state, self.wait_since = "request", self.now
            if self.batch < self.count:
                self._train()

    def _use(self) -> None:
        """Train on the batch."""
        self.state = "use"
        self._compute(TRAINING, self.load.using[self.batch % len(self.load.using)], self.load.width)

    def _train(self) -> None:
        """Request the next batch: make it, receive it, or wait until it is ready."""
        if not self.workers:
            self.state = "make"
            self._pause(TRAINING, self.batch)
        elif self.made[self.batch]:
            waited = self.now - self.wait_since
            if self.batch:
                self.wait_ns += waited
            else:
                self.first_ns = waited
            self.state, self.wait_since = "receive", self.now
            heappush(self.waiting, (self.now + self._reply_ns(self.batch % self.workers), TRAINING))

    def _reply_ns(self, worker: int) -> float:
        """Return how long a worker's other threads wait for its interpreter lock."""
        return 0.0 if self.idle[worker] else self.load.reply_ns * self.load.making_cpu
