"""Say what a flow gets and why, and count."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from umsh.fabric.queue import Queue

if TYPE_CHECKING:
    from umsh.fabric.fabric import Fabric
    from umsh.fabric.flow import Flow
    from umsh.fabric.link_engine import LinkEngine

MOVES_TOLD = 3


def stats(fabric: Fabric) -> dict[str, Any]:
    """Counters of every flow and link; see `Fabric.stats`."""
    core = fabric.core
    with core.lock:
        links = {
            name: {
                "capacity_gbps": engine.pacer.capacity_bps / 1e9,
                "in_flight_nbytes": engine.pacer.in_flight_nbytes,
                "served_nbytes": sum(queue.served_nbytes for queue in engine.queues.values()),
                "foreign_gbps": core.windows.foreign_bps(name) / 1e9,
                "direction_changes": memory.direction_changes
                if (memory := core.windows.memory.get(name)) is not None
                else 0,
            }
            for name, engine in core.engines.items()
        }
        flows = {name: _flow_stats(fabric, flow) for name, flow in core.flows.items()}
    return {"label": fabric.backend.label, "paced": fabric.paced, "flows": flows, "links": links}


def _flow_stats(fabric: Fabric, flow: Flow) -> dict[str, Any]:
    queues = _queues(fabric, flow)
    return {
        "priority": flow.priority,
        "target_ms": flow.target_ms,
        "transfers": flow.transfers,
        "misses": flow.misses,
        "latency_p50_ms": flow.latency_ms(50),
        "latency_p99_ms": flow.latency_ms(99),
        "served_nbytes": sum(queue.served_nbytes for _, queue in queues),
        "backlog_nbytes": sum(queue.backlog_nbytes for _, queue in queues),
        "rate_gbps": sum(queue.rate_bps for _, queue in queues) / 1e9,
        "caps_gbps": {engine.name: q.cap_bps / 1e9 for engine, q in queues if q.cap_bps is not None},
    }


def explain(fabric: Fabric, flow: Flow) -> str:
    """Sentences about one flow, the most limiting fact first."""
    core = fabric.core
    with core.lock:
        lines = [f"{flow.name}: priority {flow.priority}" + _goal(flow)]
        if core.lost is not None:
            lines.append(f"the device is lost: {core.lost}")
        if core.unpaced_because is not None:
            lines.append(f"nothing is paced: {core.unpaced_because}")
        elif not fabric.paced:
            lines.append("no flow states a priority or goal: every copy is a plain one")
        if flow.paused:
            lines.append("paused")
        if flow.not_before_s > fabric.backend.now():
            lines.append(f"delayed for another {(flow.not_before_s - fabric.backend.now()) * 1e3:.1f} ms")
        for engine, queue in _queues(fabric, flow):
            lines.append(_link_line(fabric, engine, queue))
            lines += [
                f"{engine.name} at {move.now_s:.3f} s: {move.text}"
                for move in list(core.windows.moves)[-MOVES_TOLD:]
                if move.link == engine.name
            ]
        if flow.name in core.windows.infeasible:
            lines.append(f"infeasible: {core.windows.infeasible[flow.name]}")
        lines += flow.notes
    if flow.transfers:
        p50, p99 = flow.latency_ms(50), flow.latency_ms(99)
        lines.append(
            f"{flow.transfers} transfers, p50 {p50:.3f} ms, p99 {p99:.3f} ms, {flow.misses} missed the target"
        )
    return "\n".join(lines)


def _goal(flow: Flow) -> str:
    parts = [] if flow.target_ms is None else [f"target {flow.target_ms:g} ms a transfer"]
    if flow.min_gbps:
        parts.append(f"at least {flow.min_gbps:g} GB/s")
    if flow.max_gbps is not None:
        parts.append(f"at most {flow.max_gbps:g} GB/s")
    if flow.floor:
        parts.append(f"never below {flow.floor:.0%} of a link")
    return "".join(f", {part}" for part in parts)


def _link_line(fabric: Fabric, engine: LinkEngine, queue: Queue) -> str:
    pacer = engine.pacer
    now_s = fabric.backend.now()
    carried, waiting_nbytes = queue.served_nbytes, queue.backlog_nbytes
    text = f"{engine.name}: {carried / 1e9:.3f} GB carried, {waiting_nbytes / 1e9:.3f} GB waiting"
    if queue.cap_bps is not None:
        force = "in force" if pacer.protected(now_s, queue) else "not in force: no flow with a goal is active"
        text += f", limited to {queue.cap_bps / 1e9:.1f} of {pacer.capacity_bps / 1e9:.1f} GB/s ({force})"
    if engine.held:
        text += ", held by quiet()"
    ahead = sorted(
        other.flow.name
        for other in pacer.queues
        if other.flow.priority < queue.flow.priority and other.backlog_nbytes
    )
    if queue.backlog_nbytes and ahead:
        text += f", behind {', '.join(ahead)}"
    waiting = [lane[0] for lane in queue.lanes.values() if lane[0].gate is not None]
    if waiting:
        text += f", {len(waiting)} stream(s) wait for their producer"
    return text


def _queues(fabric: Fabric, flow: Flow) -> list[tuple[LinkEngine, Queue]]:
    engines = fabric.core.engines.values()
    return [(engine, engine.queues[flow.name]) for engine in engines if flow.name in engine.queues]
