"""Build hook: a wheel or an sdist carries the console's bundle, so that installing it needs no node."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

BUILD_VARIABLE = "LOADMASTER_BUILD_CONSOLE"


class ConsoleBundleHook(BuildHookInterface):
    """Takes the bundle as it is; builds it when asked to; lets editable installs do without; else says what to run."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Called by hatchling before it collects files.

        Raises:
            RuntimeError: A release would have no console; names the command.
        """
        index = Path(self.root) / "console" / "loadmaster_console" / "bundle" / "index.html"
        if os.environ.get(BUILD_VARIABLE) == "1":
            subprocess.run([sys.executable, str(Path(self.root) / "console" / "build.py"), "bundle"], check=True)
        elif version == "editable" or index.is_file():
            return
        if not index.is_file():
            raise RuntimeError(
                "the console's bundle is missing: run `make console` first, or build with "
                f"{BUILD_VARIABLE}=1 where node 20.19 or newer is there"
            )
