app = await enter(rj.App(dsn, migrate=True))
