"""The registry on Ray (`umsh[ray]`): one actor a server, pinned to its node, restarted by Ray."""

from __future__ import annotations

import time
from typing import Any

from umsh.lan.agent import Agent
from umsh.lan.cluster import Placement, Server
from umsh.lan.errors import RegistryError, UnknownServerError
from umsh.lan.heartbeat import Heartbeat, decode, encode

ANSWER_S = 2.0
RESTARTS_MAX = 100
NAMESPACE = "umsh-lan"


class _Daemon:
    """Runs inside the Ray actor; a restart makes a new object, so the boot number grows."""

    def __init__(self, server: Server) -> None:
        self.agent = Agent(server, time.monotonic, time.time_ns())

    def node(self) -> str:
        import ray

        return str(ray.get_runtime_context().get_node_id())

    def beat(self) -> bytes:
        return encode(self.agent.heartbeat())

    def start(self, placement: Placement) -> None:
        self.agent.start(placement)

    def progress(self, request: int, sent: float, total: float, syncs: int, syncs_total: int) -> None:
        self.agent.progress(request, sent, total, syncs, syncs_total)

    def end(self, request: int) -> None:
        self.agent.end(request)


class RayRegistry:
    """Membership, placement on nodes and restarts by a Ray cluster that is already initialised.

    Servers map to Ray nodes by the custom resource `umsh:<server name>` if a node offers it, else by
    `node_of` (server name -> Ray node id), else Ray chooses. Raises RegistryError without ray.
    """

    def __init__(self, node_of: dict[str, str] | None = None, answer_s: float = ANSWER_S) -> None:
        try:
            import ray
        except ImportError as error:
            raise RegistryError(
                "Ray is not installed.",
                "There is no Ray registry.",
                "Install umsh[ray], or use LocalRegistry.",
            ) from error
        if not ray.is_initialized():
            raise RegistryError(
                "Ray is not initialised.", "There is no Ray registry.", "Call ray.init() first."
            )
        self._ray = ray
        self._node_of = node_of or {}
        self._answer_s = answer_s
        self._servers: dict[str, Server] = {}
        self._actors: dict[str, Any] = {}

    def join(self, server: Server) -> None:
        """Start the server's actor on its node; RegistryError if the name is taken or no node has it."""
        if server.name in self._servers:
            raise RegistryError(
                f"server {server.name!r} is registered already.", "Nothing changed.", "Rename it."
            )
        options: dict[str, Any] = {
            "name": server.name,
            "namespace": NAMESPACE,
            "max_restarts": RESTARTS_MAX,
            "num_cpus": 0,
        }
        resource = f"umsh:{server.name}"
        if resource in self._ray.cluster_resources():
            options["resources"] = {resource: 1}
        elif server.name in self._node_of:
            from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

            options["scheduling_strategy"] = NodeAffinitySchedulingStrategy(
                self._node_of[server.name], soft=False
            )
        self._actors[server.name] = self._ray.remote(_Daemon).options(**options).remote(server)
        self._servers[server.name] = server

    def leave(self, name: str) -> None:
        """Stop the server's actor for good."""
        actor = self.actor(name)
        self._ray.kill(actor, no_restart=True)
        del self._actors[name], self._servers[name]

    def members(self) -> dict[str, Server]:
        """The registered servers."""
        return dict(self._servers)

    def heartbeats(self) -> list[Heartbeat]:
        """Heartbeats of the actors that answer within `answer_s`; a lost node's are left out."""
        calls = {actor.beat.remote(): name for name, actor in self._actors.items()}
        if not calls:
            return []
        ready, _ = self._ray.wait(list(calls), num_returns=len(calls), timeout=self._answer_s)
        beats = []
        for call in ready:
            try:
                beats.append(decode(self._ray.get(call)))
            except self._ray.exceptions.RayActorError:
                continue  # dead or being restarted: absent until Ray has it back
        return beats

    def dispatch(self, placement: Placement) -> None:
        """Start the request at its actor; RegistryError if the actor is gone or does not answer."""
        self.call(placement.server, "start", placement)

    def call(self, name: str, method: str, *arguments: Any) -> Any:
        """Call the server's daemon and wait for the answer, at most `answer_s`."""
        actor = self.actor(name)
        try:
            return self._ray.get(getattr(actor, method).remote(*arguments), timeout=self._answer_s)
        except (self._ray.exceptions.RayActorError, self._ray.exceptions.GetTimeoutError) as error:
            raise RegistryError(
                f"server {name!r} does not answer: {type(error).__name__}.",
                "The call had no effect that is known of.",
                "The request is queued again when its heartbeats stop.",
            ) from error

    def node(self, name: str) -> str:
        """The id of the Ray node that the server's actor runs on."""
        return str(self.call(name, "node"))

    def actor(self, name: str) -> Any:
        """The Ray actor of a server."""
        actor = self._actors.get(name)
        if actor is None:
            raise UnknownServerError(
                f"no server {name!r} is registered.", "Nothing was sent.", "Let it join first."
            )
        return actor
