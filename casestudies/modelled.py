"""What the models of the paper's machines say of a study's hand-over; nothing else is modelled."""

from __future__ import annotations

from msgspec.structs import replace

from casestudies.study import ROOT, Result, Study, save
from umsh.backends.model import cost
from umsh.backends.model.description import Machine, described, load
from umsh.probe.modelled import fastest, hand_over_ns

# Study -> direction and bytes of one hand-over, as its run.py has them.
HAND_OVERS = {
    "image_preprocessing": ("cpu->gpu", 8 * 3 * 224 * 224 * 4),
    "output_sampling": ("gpu->cpu", 8 * 128_256 * 4),
    "point_cloud": ("gpu->cpu", 60_000 * 64 * 4),
}
COMMAND = "python -m casestudies --modelled"
METRIC = "handover"
NOTES = [
    "a model's hand-over alone: the writer writes, the reader reads; the rest of the study is not modelled",
    "the copy runs at the GPU's own bandwidth after one launch, the fastest it could",
]


def copied_ns(machine: Machine, direction: str, nbytes: int) -> float:
    """The baseline: each agent uses memory of its own, without coherence, and a copy lies between."""
    own = replace(machine.kinds[0], cpu="WB", gpu="WB", coherence="none")
    writer, reader = direction.split("->")
    pages = "thp" if nbytes >= cost.LARGE_PAGE_NBYTES else "4k"
    work = cost.write_ns(machine, writer, own, pages, nbytes, "WA")
    work += cost.read_ns(machine, reader, own, pages, nbytes, "RA")
    copy = nbytes / machine["gpu.read_bandwidth"] + nbytes / machine["gpu.write_bandwidth"]
    return work + copy + 2 * cost.start_ns(machine, "gpu") + cost.start_ns(machine, "cpu")


def run(study: Study) -> list[Result]:
    """One result a described machine on which some sharing keeps."""
    direction, nbytes = HAND_OVERS[study.name]
    found = []
    for machine in map(load, described()):
        sharing = fastest(machine, direction, "kernel", nbytes)
        if not sharing:
            continue
        times = {
            study.baseline: copied_ns(machine, direction, nbytes),
            study.ours: hand_over_ns(machine, sharing, direction, nbytes),
        }
        found.append(
            Result(
                study=study.name,
                command=COMMAND,
                parameters={"nbytes": nbytes, "direction": direction},
                units={METRIC: "ms"},
                samples={way: {METRIC: [round(ns / 1e6, 4)]} for way, ns in times.items()},
                verified=True,
                notes=[*NOTES, f"sharing: {sharing}"],
                provenance="modelled",
                machine={"model": machine.platform},
                metric=METRIC,
            )
        )
    return found


def write(studies: dict[str, Study]) -> None:
    """Rewrite every modelled result file."""
    for name in HAND_OVERS:
        for result in run(studies[name]):
            save(result, ROOT / name, f"{result.machine['model']}.modelled")
