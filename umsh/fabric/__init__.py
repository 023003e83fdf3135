"""The links inside a server, scheduled: flows with goals, one queue a link, a loop that keeps the goals."""

from __future__ import annotations

from umsh.fabric.fabric import Fabric
from umsh.fabric.flow import Flow
from umsh.fabric.transfer import Transfer

__all__ = ["Fabric", "Flow", "Transfer"]
