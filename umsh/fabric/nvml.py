"""NVML's counters as sources: PCIe bytes, NVLink bytes, GPM rates; each probed by reading it twice."""

from __future__ import annotations

import time
from collections.abc import Iterable
from importlib import import_module
from typing import Any

from umsh.errors import UnsupportedError
from umsh.fabric.signals import Sample, Source

PCIE_TX, PCIE_RX = 197, 198  # NVML_FI_DEV_PCIE_COUNT_TX_BYTES, _RX_BYTES: device to host, host to device
NVLINK_TX, NVLINK_RX, ALL_LINKS = 138, 139, 0xFFFFFFFF  # NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX, _RX
GPM_PCIE_TX, GPM_PCIE_RX = 20, 21  # MiB/s, headers included; samples must be more than 100 ms apart
GPM_PERIOD_S = 0.12
MIB, KIB = 1 << 20, 1 << 10


class PcieCounters:
    """Fields 197 and 198: cumulative, wrapping at 32 bits of a unit that own traffic calibrates."""

    name = "nvml pcie"

    def __init__(self, nvml: Any, device: int) -> None:
        self._nvml, self._device = nvml, device
        self._handle = nvml.nvmlDeviceGetHandleByIndex(device)

    def read(self) -> Iterable[Sample]:
        values = self._nvml.nvmlDeviceGetFieldValues(self._handle, [PCIE_TX, PCIE_RX])
        for kind, value in zip(("d2h", "h2d"), values, strict=True):
            if value.nvmlReturn == self._nvml.NVML_SUCCESS:
                yield Sample(f"{kind}:{self._device}", counter=int(value.value.ullVal), bits=32)


class NvlinkCounters:
    """Fields 138 and 139 over all links of a device, KiB; which peer the bytes went to is not told."""

    name = "nvml nvlink"

    def __init__(self, nvml: Any, device: int) -> None:
        self._nvml, self._device = nvml, device
        self._handle = nvml.nvmlDeviceGetHandleByIndex(device)
        self._peers = [i for i in range(int(nvml.nvmlDeviceGetCount())) if i != device]

    def read(self) -> Iterable[Sample]:
        if len(self._peers) != 1:  # with several peers the sum belongs to no link
            return
        fields = [(NVLINK_TX, ALL_LINKS), (NVLINK_RX, ALL_LINKS)]
        values = self._nvml.nvmlDeviceGetFieldValues(self._handle, fields)
        ends = ((self._device, self._peers[0]), (self._peers[0], self._device))
        for (sender, receiver), value in zip(ends, values, strict=True):
            if value.nvmlReturn == self._nvml.NVML_SUCCESS:
                yield Sample(f"p2p:{sender}>{receiver}", counter=int(value.value.ullVal) * KIB)


class GpmRates:
    """GPM's PCIe rates: averages between two samples, at best every 100 ms."""

    name = "nvml gpm"

    def __init__(self, nvml: Any, device: int) -> None:
        self._nvml, self._device = nvml, device
        self._handle = nvml.nvmlDeviceGetHandleByIndex(device)
        self._previous: Any = nvml.nvmlGpmSampleAlloc()
        self._current: Any = nvml.nvmlGpmSampleAlloc()
        nvml.nvmlGpmSampleGet(self._handle, self._previous)
        self._sampled_s = time.monotonic()

    def read(self) -> Iterable[Sample]:
        nvml = self._nvml
        if time.monotonic() - self._sampled_s < GPM_PERIOD_S:
            return
        self._sampled_s = time.monotonic()
        nvml.nvmlGpmSampleGet(self._handle, self._current)
        request = nvml.c_nvmlGpmMetricsGet_t()
        request.version, request.numMetrics = nvml.NVML_GPM_METRICS_GET_VERSION, 2
        request.sample1, request.sample2 = self._previous, self._current
        request.metrics[0].metricId, request.metrics[1].metricId = GPM_PCIE_TX, GPM_PCIE_RX
        nvml.nvmlGpmMetricsGet(request)
        self._previous, self._current = self._current, self._previous
        for kind, metric in zip(("d2h", "h2d"), request.metrics, strict=False):
            if metric.nvmlReturn == nvml.NVML_SUCCESS:
                yield Sample(f"{kind}:{self._device}", rate_bps=float(metric.value) * MIB)


def sources(device: int = 0, nvml: Any = None) -> list[Source]:
    """The sources that answer on this device: byte counters, and GPM only where those do not.

    Raises `UnsupportedError` when NVML is missing or nothing answers.
    """
    if nvml is None:
        try:
            nvml = import_module("pynvml")
        except ImportError as error:
            raise UnsupportedError(
                f"NVML's binding is not installed ({error}).",
                "Traffic of others on the links is not seen.",
                "Install nvidia-ml-py.",
            ) from error
    try:
        nvml.nvmlInit()
    except (nvml.NVMLError_LibraryNotFound, nvml.NVMLError_DriverNotLoaded) as error:
        raise UnsupportedError(
            f"There is no NVIDIA driver to ask ({error}).",
            "Traffic of others on the links is not seen.",
            "Go on without: own bytes are counted without NVML.",
        ) from error
    counters: list[Source] = [PcieCounters(nvml, device), NvlinkCounters(nvml, device)]
    found = [source for source in counters if list(source.read())]
    handle = nvml.nvmlDeviceGetHandleByIndex(device)
    if not any(source.name == PcieCounters.name for source in found) and (
        nvml.nvmlGpmQueryDeviceSupport(handle).isSupportedDevice
    ):
        found.append(GpmRates(nvml, device))
    if not found:
        raise UnsupportedError(
            f"NVML answers none of its traffic counters for device {device}.",
            "Traffic of others on the links is not seen.",
            "Go on without: own bytes are counted without NVML.",
        )
    return found
