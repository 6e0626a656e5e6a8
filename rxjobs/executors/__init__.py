"""Where a job's code runs."""
