"""What an app is asked and told by name, `app.jobs` and the like: each is imported, and made, when it is first asked for.

A process that declares jobs and enqueues some needs none of them, and pays for none when it starts.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from rxjobs.app import App
    from rxjobs.breakers import Breakers
    from rxjobs.cron import Cron
    from rxjobs.dead_letters import DeadLetters
    from rxjobs.history import History
    from rxjobs.jobs import Jobs
    from rxjobs.nodes import Nodes
    from rxjobs.queues import Queues
    from rxjobs.sources.looks import Looks


class Facets:
    """The parts of an app that have a name of their own."""

    @cached_property
    def jobs(self) -> Jobs:
        """The rows: find, count, cancel, retry and delete jobs."""
        from rxjobs.jobs import Jobs

        app = self._app
        return Jobs(lambda: app.store, app.definitions, app.client_here)

    @cached_property
    def queues(self) -> Queues:
        """The queues: list, pause, resume, scale and limit them."""
        from rxjobs.queues import Queues

        app = self._app
        return Queues(lambda: app.store, app.definitions, app.queues_taken, self.looks)

    @cached_property
    def cron(self) -> Cron:
        """Jobs that come again: `app.cron("0 8 * * 1-5", send_digest.new())`, and list, pause, resume, run and remove them."""
        from rxjobs.cron import Cron

        app = self._app
        return Cron(lambda: app.store, app.client_here)

    @cached_property
    def breakers(self) -> Breakers:
        """The breakers of job types: list, open and close them."""
        from rxjobs.breakers import Breakers

        app = self._app
        return Breakers(lambda: app.store, app.definitions, app.circuits, self.looks)

    @cached_property
    def nodes(self) -> Nodes:
        """The processes that run jobs: list them."""
        from rxjobs.nodes import Nodes

        app = self._app
        return Nodes(lambda: app.store)

    @cached_property
    def history(self) -> History:
        """The finished jobs: have them in a table for each day, week or month, and list those."""
        from rxjobs.history import History

        app = self._app
        return History(lambda: app.store)

    @cached_property
    def dead_letters(self) -> DeadLetters:
        """What is known of jobs that are discarded, and who is told."""
        from rxjobs.dead_letters import DeadLetters
        from rxjobs.witness import Witness

        app = self._app
        return DeadLetters(self.jobs.get, Witness(app, app.queues_taken))

    @property
    def on_dead_letter(self) -> Callable[..., Any]:
        """Have a function called, or a URL posted to, with each job that this node discards: see DeadLetters.on."""
        return self.dead_letters.on

    @cached_property
    def looks(self) -> Looks:
        """What this process has seen of what there is to do."""
        from rxjobs.sources.looks import Looks

        return Looks(self._app)

    @property
    def _app(self) -> App:
        return cast("App", self)
