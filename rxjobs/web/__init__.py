"""`rxjobs web`: a few pages that show what goes on, and let it be steered. Off unless it is started."""
