"""`rxjobs bench`: what this machine and its PostgreSQL can do, what rxjobs makes of it, and what that costs."""
