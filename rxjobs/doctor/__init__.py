"""`rxjobs doctor`: what is wrong with a database and the nodes on it, and what to do about it."""
