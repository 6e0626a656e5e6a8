# the module that the page starts
ground.reader.write("shop.py", "import rxjobs as rj\napp = rj.App()\n\n\n@app.job\nasync def send(user_id: int) -> None: ...\n")
