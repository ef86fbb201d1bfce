"""Write the OpenAPI document of the planner's app: what the console's typed client is generated from."""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

from loadmaster_server.app import Planner, create_app
from loadmaster_server.settings import PlannerSettings
from loadmaster_server.store import upgrade


def main(target: Path) -> None:
    """Write the document to `target`, keys sorted, so that it changes only when the API does."""
    with tempfile.TemporaryDirectory() as folder:
        settings = PlannerSettings(state_dir=Path(folder))
        upgrade(settings.store_url)
        planner = Planner(settings)
        try:
            document = create_app(planner).openapi()
        finally:
            planner.close()
    target.write_text(json.dumps(document, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
