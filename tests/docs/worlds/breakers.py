# a shop whose customers' cards may be refused
class CardRefused(Exception): ...


def page_somebody(job_type): ...


app = rj.App(dsn)
