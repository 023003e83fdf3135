"""A loop of short kernels over a slower network, in turn with the same loop on this machine's device."""

from __future__ import annotations

import json
import os
import statistics
import tempfile
from pathlib import Path
from typing import Annotated

import typer

from umsh.remote.address import host_and_port
from umsh.remote.bench import NOTHING, compile_program, printed_by
from umsh.remote.relay import Network, Relay
from umsh.remote.run import LIBRARIES, SERVER_DEFAULT, environment

SOURCE = Path(__file__).parent / "native" / "bench" / "loop.cpp"
LOCAL = "local"


def main(
    server: Annotated[str, typer.Option(help="host:port of a server.")] = SERVER_DEFAULT,
    kernels: Annotated[int, typer.Option(help="Kernels of one loop.")] = 2000,
    kernel_us: Annotated[int, typer.Option(help="Microseconds of one kernel.")] = 25,
    pairs: Annotated[int, typer.Option(help="Rounds; each runs every case once, in turn.")] = 5,
    delay_ms: Annotated[float, typer.Option(help="Delay of each way.")] = 0.42,
    rate_mbit: Annotated[float, typer.Option(help="Rate of each way.")] = 1000.0,
    software: Annotated[
        bool, typer.Option("--software", help="The software device's kernel; no local case.")
    ] = False,
    libraries: Annotated[Path, typer.Option(help="Folder of the client's libraries.")] = LIBRARIES,
) -> None:
    """Measure, and print as JSON: every sample in seconds, medians, and each case against the local one."""
    network = Network(delay_ms / 1e3, rate_bit_s=rate_mbit * 1e6)
    relay = Relay(*host_and_port(server, NOTHING), network)
    cases = ("full", "naive") if software else (LOCAL, "full", "naive")
    samples: dict[str, list[float]] = {case: [] for case in cases}
    with tempfile.TemporaryDirectory() as folder:
        program = str(compile_program(Path(folder), libraries, SOURCE))
        command = [program, str(kernels), str(kernel_us), *(["software"] if software else [])]
        for _ in range(pairs):
            for case in cases:
                there = f"127.0.0.1:{relay.port}"
                env = dict(os.environ)  # for the local case: whatever driver this machine has
                if case != LOCAL:
                    env = environment(os.environ, there, mode=case, libraries=libraries)
                samples[case].append(float(printed_by(command, env)))
    medians = {case: statistics.median(values) for case, values in samples.items()}
    base = medians.get(LOCAL)
    ratios = {case: median / base for case, median in medians.items()} if base else {}
    made = {
        "kernels": kernels, "kernel_us": kernel_us, "delay_each_way_ms": delay_ms, "rate_mbit": rate_mbit,
        "seconds": samples, "median_s": medians, "against_local": ratios,
    }  # fmt: skip
    typer.echo(json.dumps(made, indent=1))


if __name__ == "__main__":
    typer.run(main)
