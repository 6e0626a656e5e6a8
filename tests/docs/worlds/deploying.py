# the module that the page starts
ground.reader.write(
    "shop/jobs.py", "import rxjobs as rj\napp = rj.App()\n\n\n@app.job\nasync def send_welcome(user_id: int) -> None: ...\n"
)
