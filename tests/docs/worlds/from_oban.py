# both programs find the database by its variable, and its tables
ground.environ["RXJOBS_DSN"] = dsn
