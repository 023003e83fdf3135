"""LAN scheduling: which server of the local network runs which GPU task, and when it loads."""

from umsh.lan.cluster import (
    Cell,
    Decision,
    LanState,
    Link,
    Placement,
    Request,
    Running,
    Server,
    ServerState,
    TaskType,
)
from umsh.lan.policies import make
from umsh.lan.scheduler import Scheduler
from umsh.lan.tracker import Tracker

__all__ = [
    "Cell",
    "Decision",
    "LanState",
    "Link",
    "Placement",
    "Request",
    "Running",
    "Scheduler",
    "Server",
    "ServerState",
    "TaskType",
    "Tracker",
    "make",
]
