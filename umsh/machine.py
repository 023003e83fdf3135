"""Facts asked of this machine, and which platform they say it is; never a marketing name."""
