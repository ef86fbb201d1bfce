"""The planner as an ASGI app: the store, the services on it, and their routes."""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import version

from fastapi import FastAPI
from sqlalchemy.orm import Session

from loadmaster_console import ConsolePages

from .access import AccessService, BodyLimit, access_routes, add_refusal_handlers
from .actors import ActorService, actor_routes
from .ledger import LedgerService, ledger_routes
from .live import Around, LiveService, LiveWatch, live_routes
from .monitoring import PlannerCollector, Seen, metrics_routes
from .planning.warming import Warming
from .plans import Counters, GraphService, PlanService, PlanSupervisor, Retention, plan_routes
from .problems import add_problem_handlers, problem_answer, refused_body
from .runs import JoinService, RankWatch, RunService, TicketOffice, run_routes
from .schedules import ScheduleService, schedule_routes
from .settings import PlannerSettings
from .store import Store


class Planner:
    """Everything that runs in a planner process but the HTTP server. `start` once, `close` in the end.

    Args:
        settings: Where the store is, and how fast silence is noticed.
        fence: Called first in each transaction that writes; it raises when another planner acts.
        is_open: Whether requests reach it; leases of processes do not lapse while none does.
    """

    def __init__(
        self,
        settings: PlannerSettings,
        *,
        fence: Callable[[Session], None] | None = None,
        is_open: Callable[[], bool] = lambda: True,
    ) -> None:
        self.settings = settings
        self.store = Store(settings.store_url, storage=settings.storage_uri, fence=fence)
        self.store.runs.retire_idle()
        self.ranks, self.watch = RankWatch(), LiveWatch()
        self.actors = ActorService(
            self.store,
            heartbeat_s=settings.heartbeat_s,
            lease_s=settings.lease_s,
            on_progress=self.ranks.note,
            awaited=self.ranks.recent_text,
            on_heard=self.watch.hear,
            on_acknowledged=self.watch.acknowledged,
            is_open=is_open,
            tls=settings.tls,
        )
        self.joins = JoinService(self.store, self.ranks)
        self.warming = Warming()
        self.runs = RunService(
            self.store, self.joins.waiting_for, lambda spec: self.warming.look_at(spec.batch), self.ranks
        )
        self.tickets = TicketOffice(self.store)
        self.plans = PlanService(self.store)
        self.graphs = GraphService(self.store)
        self.ledger = LedgerService(self.store, tls=settings.tls)
        self.schedules = ScheduleService(self.store)
        self.access = AccessService(self.store.access, settings.access)
        self.counters = Counters()
        every = settings.checkpoint_steps
        self._supervisor = PlanSupervisor(self.store, checkpoint_steps=every, counters=self.counters, tls=settings.tls)
        self._retention = Retention(self.store, settings.retention, checkpoint_steps=every, counters=self.counters)
        around = Around(
            views=self.runs, actors=self.actors.views, waited_for=self.ranks.recent_text, clocks=self._supervisor.clocks
        )
        self.live = LiveService(self.store, self.watch, around)
        self.metrics = PlannerCollector(
            Seen(
                store=self.store,
                log=self.live.log,
                boards=self.watch.ranks,
                watch=self.ranks,
                counters=self.counters,
                actors=self.actors.views,
                leaving=self.actors.leaving,
                clocks=self._supervisor.clocks,
                events=self.live.stats,
                refusals=self.access.refusals.counts,
            )
        )

    def start(self) -> None:
        """Start the threads: expiry of actors, plan loops, and for open runs of large steps the warm-up."""
        for run in {generation.key.run for generation in self.store.generations.live()}:
            self.warming.look_at(self.store.runs.definition(run).spec.batch)
        self.actors.start()
        self._supervisor.start()
        self._retention.start()
        self.live.start()

    def stats(self) -> dict[str, float]:
        """Sizes of the plan log, and what was counted since the planner started. The one place to look at both."""
        return self.store.archive.sizes() | self.counters.read() | self.live.stats()

    def end_waits(self) -> None:
        """Answer all long polls and end all event streams at once, from now on. Idempotent."""
        self.store.bulletin.close()
        self.live.end_waits()

    def close(self) -> None:
        """Stop the threads and close the store. Idempotent."""
        self.end_waits()
        self.live.close()
        self._retention.close()
        self._supervisor.close()
        self.actors.close()
        self.store.close()


def create_app(planner: Planner) -> FastAPI:
    """The app of a planner, which must have been started."""
    app = FastAPI(title="Loadmaster planner", version=version("loadmaster"), docs_url=None, redoc_url=None)
    add_problem_handlers(app)
    add_refusal_handlers(app, planner.access, problem_answer)
    app.state.access = planner.access
    for router in (
        access_routes(planner.access),
        actor_routes(planner.actors),
        run_routes(planner.runs, planner.joins, planner.tickets),
        plan_routes(planner.plans, planner.graphs, planner.stats),
        ledger_routes(planner.ledger),
        schedule_routes(planner.schedules),
        live_routes(planner.live),
        metrics_routes(planner.metrics.read),
    ):
        app.router.routes.extend(router.routes)  # as they are: `include_router` would build each of them again
    app.add_middleware(ConsolePages)
    app.add_middleware(BodyLimit, access=planner.access, answer=refused_body)
    return app
