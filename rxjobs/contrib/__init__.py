"""rxjobs inside of the frameworks of others; each needs its own."""
