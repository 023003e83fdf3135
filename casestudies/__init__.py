"""Case studies: what an application gains over what people use today; public API only."""
