"""umsh: memory that CPU and GPU share, right on every machine, and it says why."""
