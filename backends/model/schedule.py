"""Virtual time: jobs of the agents, interleaved by a seeded adversary in native/model_steps.c."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

from umsh.backends.driver import Event, Pending, Stream
from umsh.backends.model.cost import CPU, GPU, Floats
from umsh.backends.model.memory import ModelMemory
from umsh.errors import UnsupportedError, WaitTimeout
from umsh.native import ffi, lib

T = TypeVar("T")
FOREVER_S = 1e9
EVENTS_MAX = 200_000_000  # of one wait for a job, whose own bounds are smaller


class Running(Pending[T], Generic[T]):
    """One job of one agent, begun at a virtual time on one or two memories."""

    def __init__(
        self, schedule: Schedule, agent: int, begun_ns: float, memories: Sequence[ModelMemory]
    ) -> None:
        self._schedule = schedule
        self.agent = agent
        self.time_ns = int(begun_ns)
        self.memories = list(memories)
        self.done = False
        self.value: T | None = None

    def result(self, timeout_s: float) -> T:
        self._schedule.finish(self, timeout_s)
        return self.value  # type: ignore[return-value]


class Block(Running[T]):
    """A run of accesses as one event. act(world): its effect; ns: its time."""

    def __init__(self, schedule: Schedule, agent: int, begun_ns: float, memory: ModelMemory,
                 act: Callable[[Any], T], ns: float) -> None:  # fmt: skip
        super().__init__(schedule, agent, begun_ns, [memory])
        self.act = act
        self.ns = ns


class Role(Running[int]):
    """A program of steps. rows: int32 [n][4]; settings, registers: uint32, see steps.h; job: its fields."""

    def __init__(self, schedule: Schedule, agent: int, begun_ns: float, memories: Sequence[ModelMemory],
                 rows: Any, settings: Any, registers: Any, job: dict[str, int]) -> None:  # fmt: skip
        super().__init__(schedule, agent, begun_ns, memories)
        self._kept = rows, settings, registers
        fields = {"agent": agent, "time_ns": self.time_ns, "live": 1, "epoch": lib.UMSH_EPOCH, **job}
        self.job = ffi.new("umsh_model_job *", fields)
        self.job.program = ffi.cast("int32_t *", rows.ctypes.data)
        self.job.settings = ffi.cast("uint32_t *", settings.ctypes.data)
        self.job.registers = ffi.cast("uint32_t *", registers.ctypes.data)


class Schedule:
    """All jobs of a device. A block runs at its turn; roles run together, the one furthest behind first."""

    def __init__(self, costs: Floats, faults: int, weak_cpu: bool) -> None:
        self.clock_ns = 0
        self._world = ffi.new(
            "umsh_model_world *", {"chance": 1, "faults": faults, "cpu_weak": int(weak_cpu)}
        )
        for agent in (CPU, GPU):
            self._world.cost[agent][0 : costs.shape[1]] = costs[agent].tolist()
        self._running: list[Block[Any] | Role] = []
        self._used: dict[int, ModelMemory] = {}

    def seed(self, seed: int) -> None:
        """Begin the adversary's choices anew."""
        self._world.chance = seed + 1

    def start(self, job: Any) -> Any:
        self._running.append(job)
        return job

    def unfinished(self) -> list[Block[Any] | Role]:
        return list(self._running)

    def finish(self, wanted: Running[Any], timeout_s: float) -> None:
        """Run everything until `wanted` has ended. WaitTimeout after `timeout_s` of virtual time."""
        deadline_ns = self.clock_ns + timeout_s * 1e9
        for job in self.unfinished():
            if isinstance(job, Block) and not wanted.done:
                self._do(job)
        if not wanted.done:
            self._play(wanted, deadline_ns)
        if not wanted.done:
            raise WaitTimeout(
                f"A modelled job did not end within {timeout_s} s of virtual time.",
                "It goes on with the device's next work, to its own bound.",
                "Wait longer, or start its partner.",
            )

    def _settle(self, agent: int) -> None:
        """The driver's work between kernels, on every memory used since the GPU's last."""
        for memory in list(self._used.values()):
            self._show([memory])
            lib.umsh_model_settle(self._world, agent)
        if agent == GPU:
            self._used.clear()

    def _do(self, job: Block[Any]) -> None:
        self._settle(job.agent)
        self._use(job)
        self._show(job.memories)
        job.value = job.act(self._world)
        job.done = True
        self._settle(job.agent)
        self.clock_ns = max(self.clock_ns, job.time_ns + int(job.ns))
        self._running.remove(job)

    def _play(self, wanted: Running[Any], deadline_ns: float) -> None:
        roles = [one for one in self._running if isinstance(one, Role)][: lib.UMSH_MODEL_JOBS]
        memories = list({id(memory): memory for role in roles for memory in role.memories}.values())
        if len(memories) > lib.UMSH_MODEL_MEMORIES or wanted not in roles:
            raise UnsupportedError(
                f"{len(roles)} jobs on {len(memories)} memories run at once.", "Nothing was run.",
                f"The model interleaves {lib.UMSH_MODEL_JOBS} jobs on {lib.UMSH_MODEL_MEMORIES} memories.",
            )  # fmt: skip
        self._settle(CPU)
        self._settle(GPU)
        jobs = ffi.new("umsh_model_job[]", len(roles))
        for j, role in enumerate(roles):
            jobs[j] = role.job[0]
            place = [next(k for k, m in enumerate(memories) if m is memory) for memory in role.memories]
            jobs[j].words, jobs[j].control = place[0], place[-1]
            if not role.job.bare and role.job.time_ns == role.time_ns:
                role.memories[-1].marks[:] = 0  # the harness has reset the control words in memory itself
            self._use(role)
        self._show(memories)
        last = int(min(deadline_ns, 2.0**62))
        lib.umsh_model_play(self._world, jobs, len(roles), roles.index(wanted), last, EVENTS_MAX)
        for j, role in enumerate(roles):
            role.job[0] = jobs[j]
            self.clock_ns = max(self.clock_ns, role.job.time_ns)
            if not role.job.live:
                role.value, role.done = role.job.instance, True
                self._running.remove(role)

    def _use(self, job: Block[Any] | Role) -> None:
        for memory in job.memories:
            self._used[id(memory)] = memory

    def _show(self, memories: Sequence[ModelMemory]) -> None:
        """Let the native rules see these memories, and no other."""
        for m in range(lib.UMSH_MODEL_MEMORIES):
            if m < len(memories):
                self._world.memory[m] = memories[m].native[0]
            else:
                self._world.memory[m].nbytes = 0


class Together(Pending[int]):
    """Several jobs whose results add up."""

    def __init__(self, parts: Sequence[Pending[int]]) -> None:
        self._parts = parts

    def result(self, timeout_s: float) -> int:
        return sum(part.result(timeout_s) for part in self._parts)


class ModelEvent(Event):
    """The jobs that ran when it was recorded."""

    def __init__(self, schedule: Schedule) -> None:
        self._schedule = schedule
        self._jobs = schedule.unfinished()

    def done(self) -> bool:
        return all(job.done for job in self._jobs)

    def wait(self, timeout_s: float) -> None:
        for job in self._jobs:
            if not job.done:
                self._schedule.finish(job, timeout_s)


class ModelStream(Stream):
    """The device's one order of work."""

    def __init__(self, schedule: Schedule, native: object | None = None) -> None:
        self.native = native
        self._schedule = schedule

    def record(self) -> Event:
        return ModelEvent(self._schedule)

    def wait_event(self, event: Event) -> None:
        event.wait(FOREVER_S)

    def synchronize(self, timeout_s: float) -> None:
        ModelEvent(self._schedule).wait(timeout_s)
