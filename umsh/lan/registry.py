"""Where servers register and placements go: the interface, and the default within one process."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from umsh.lan.agent import Agent
from umsh.lan.cluster import Placement, Server
from umsh.lan.errors import RegistryError, UnknownServerError
from umsh.lan.heartbeat import Heartbeat

SERVERS_MAX = 10_000


class Registry(Protocol):
    """Membership and dispatch. A remote engine plugs in behind these five calls."""

    def join(self, server: Server) -> None:
        """Add a server; RegistryError if the name is taken."""

    def leave(self, name: str) -> None:
        """Remove a server; UnknownServerError if it is not there."""

    def members(self) -> dict[str, Server]:
        """The registered servers, alive or not."""

    def heartbeats(self) -> list[Heartbeat]:
        """A fresh heartbeat of each server that answers; a dead one is left out."""

    def dispatch(self, placement: Placement) -> None:
        """Hand a placed request to its server; RegistryError if the server does not take it."""


class LocalRegistry:
    """The default: agents in this process, no engine needed."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._agents: dict[str, Agent] = {}
        self._boots = 0

    def join(self, server: Server) -> None:
        """Add a server; RegistryError if the name is taken or SERVERS_MAX are registered."""
        if server.name in self._agents or len(self._agents) >= SERVERS_MAX:
            raise RegistryError(
                f"server {server.name!r} is registered already, or {SERVERS_MAX} are.",
                "Nothing changed.",
                "Remove one first or rename it.",
            )
        self._boots += 1
        self._agents[server.name] = Agent(server, self._clock, self._boots)

    def leave(self, name: str) -> None:
        """Remove a server."""
        self.agent(name)
        del self._agents[name]

    def members(self) -> dict[str, Server]:
        """The registered servers."""
        return {name: agent.server for name, agent in self._agents.items()}

    def heartbeats(self) -> list[Heartbeat]:
        """A heartbeat of each server."""
        return [agent.heartbeat() for agent in self._agents.values()]

    def dispatch(self, placement: Placement) -> None:
        """Start the request at its server's agent."""
        self.agent(placement.server).start(placement)

    def agent(self, name: str) -> Agent:
        """The agent of a server, for the code that runs tasks there."""
        agent = self._agents.get(name)
        if agent is None:
            raise UnknownServerError(
                f"no server {name!r} is registered.", "Nothing was sent.", "Let it join first."
            )
        return agent
