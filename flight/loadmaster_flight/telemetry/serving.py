"""An endpoint where one is asked for. Nothing that it needs is imported otherwise: that takes a tenth of a second."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ..wire.tls import Tls
from .metrics import Readings
from .options import TelemetryOptions

if TYPE_CHECKING:
    from .endpoint import MetricsEndpoint

LOG = logging.getLogger(__name__)


@contextmanager
def serving_metrics(
    options: TelemetryOptions, role: str, collect: Callable[[], Readings], tls: Tls
) -> Iterator[MetricsEndpoint | None]:
    """An endpoint for as long as the block runs, if the options name a port.

    Args:
        role, collect, tls: As for `MetricsEndpoint`.

    Raises:
        BadRequestError, UnavailableError: As `MetricsEndpoint`.
    """
    if options.metrics_port is None:
        yield None
        return
    from .endpoint import MetricsEndpoint

    with MetricsEndpoint(role, collect, host=options.metrics_host, port=options.metrics_port, tls=tls) as endpoint:
        LOG.info("metrics at %s", endpoint.url)
        yield endpoint
