"""The app for processes that Django has not been started in: those of `manage.py rxjobs run --processes 4`."""

import django

from rxjobs.contrib.django.project import the_app

django.setup()

app = the_app()
