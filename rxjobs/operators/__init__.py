"""What happens to a stream of jobs."""
