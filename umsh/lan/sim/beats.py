"""Heartbeats of simulated servers: progress read from the pools as a daemon thread would count it."""

from __future__ import annotations

from collections.abc import Mapping

from umsh.lan.cluster import TaskType
from umsh.lan.heartbeat import Heartbeat, Progress
from umsh.lan.sim.parts import Job, Node


def message(node: Node, types: Mapping[str, TaskType], now_s: float) -> Heartbeat:
    """The node's next heartbeat."""
    node.seq += 1
    node.gpu.advance(now_s)
    node.path.pool.advance(now_s)
    return Heartbeat(
        server=node.server.name,
        boot=node.boot,
        seq=node.seq,
        sent_s=now_s,
        gpu=node.server.gpu,
        memory_mb=node.server.memory_mb,
        links=node.server.links,
        utilisation=max(0.0, min(1.0, node.occupancy)),
        tasks=tuple(_progress(job, types[job.request.type]) for job in node.jobs.values()),
        cached={name: now_s - used for name, used in node.cached.items()},
    )


def _progress(job: Job, kind: TaskType) -> Progress:
    request, sent, syncs = job.request, 0.0, 0
    if job.stage == "load":
        sent = max(0.0, job.load_s - max(0.0, job.finish - job.node.path.pool.virtual))
    else:
        whole = kind.cells[job.node.server.gpu].infer_s
        left = max(0.0, job.finish - job.node.gpu.virtual)
        syncs = int(kind.syncs * (1.0 - min(1.0, left / whole))) if whole > 0.0 else kind.syncs
    # Bytes stand in seconds of loading alone: only their ratio is used.
    return Progress(
        request.id,
        request.client,
        request.type,
        job.stage,
        request.submit_s,
        sent,
        job.load_s,
        syncs,
        kind.syncs,
        not job.cold,
    )
