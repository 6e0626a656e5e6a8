"""rxjobs in a Django project: `INSTALLED_APPS = [..., "rxjobs.contrib.django"]`.

```
# shop/jobs.py: modules of this name are imported by themselves, in every installed app
from rxjobs.contrib.django import app

@app.job(queue="mail")
def send_receipt(order_id: int) -> None: ...

# a view
with transaction.atomic():
    order = Order.objects.create(...)
    enqueue(send_receipt.new(order_id=order.id))       # there once it is committed, never if it is rolled back
```

`python manage.py rxjobs run` works on them; all commands of `rxjobs` are there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rxjobs.contrib.django.project import dsn, enqueue, enqueue_many, the_app

if TYPE_CHECKING:
    from rxjobs.app import App

    app: App

__all__ = ["app", "dsn", "enqueue", "enqueue_many"]


def __getattr__(name: str) -> Any:
    if name == "app":  # made when it is asked for: Django's settings are there by then
        return the_app()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
