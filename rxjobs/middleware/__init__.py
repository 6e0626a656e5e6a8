"""What wraps one run."""
