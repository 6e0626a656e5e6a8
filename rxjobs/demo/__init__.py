"""The demo: rxjobs at work on real input, the standard library of the Python that runs it."""
