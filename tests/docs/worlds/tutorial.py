# nothing is there but what the reader makes; where no server is named, ours is
ground.environ["RXJOBS_DSN"] = dsn
