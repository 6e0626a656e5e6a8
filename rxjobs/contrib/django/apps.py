"""What Django calls when it starts."""

from __future__ import annotations

from django.apps import AppConfig
from django.db.models.signals import post_migrate
from django.utils.module_loading import autodiscover_modules

from rxjobs.contrib.django.project import migrate_too
from rxjobs.executors.child import around


class RxJobsConfig(AppConfig):  # type: ignore[misc]  # Django has no types
    name = "rxjobs.contrib.django"
    label = "rxjobs"
    verbose_name = "rxjobs"

    def ready(self) -> None:
        """Have every `jobs.py` known, also in child processes, and the schema migrated with those of Django."""
        autodiscover_modules("jobs")
        around.add("rxjobs.contrib.django.child:tidy")
        post_migrate.connect(migrate_too, sender=self, dispatch_uid="rxjobs")
