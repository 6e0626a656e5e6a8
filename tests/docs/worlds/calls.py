# a user's package, and a key
import secrets

ground.reader.write("shop/__init__.py", "")
ground.reader.write("shop/mail.py", "def send(user_id: int, locale: str = 'en') -> None: ...\n")

await rj.App(dsn, migrate=True).migrate()
import shop.mail

ground.environ["RXJOBS_DSN"] = dsn
key = secrets.token_bytes(32)
