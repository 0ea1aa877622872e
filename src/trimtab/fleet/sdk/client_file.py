"""The client file, which an application needs to reach a fleet: its location and its content."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Final

from trimtab.errors import BadInput
from trimtab.fleet.protocol.types import shown
from trimtab.fleet.site.credentials import CLIENT_FILE, read_secret

HOME_VARIABLE: Final = "TRIMTAB_HOME"
DEFAULT_HOME: Final = ".trimtab"
_HINT: Final = "start a fleet with trimtab up, or copy the file from the fleet's machine"


def fleet_home() -> Path:
    """The folder of this machine's fleet: $TRIMTAB_HOME, else .trimtab in the current folder."""
    return Path(os.environ.get(HOME_VARIABLE) or DEFAULT_HOME)


def read(fleet: str | Path | None) -> dict[str, Any]:
    """Brokers with their URLs, user, password and certificate authority; ``fleet`` is the file or its folder."""
    if fleet is not None and not isinstance(fleet, (str, Path)):
        raise BadInput(f"a fleet is given by its folder or its client file, but this came: {shown(fleet)}")
    path = fleet_home() if fleet is None else Path(fleet)
    if path.is_dir() or path.suffix != ".json":
        path = path / CLIENT_FILE
    content = read_secret(path, _HINT)
    brokers = content.get("brokers")
    well_formed = isinstance(brokers, dict) and all(_are_urls(urls) for urls in brokers.values())
    if not well_formed or not all(isinstance(content.get(key), str) for key in ("user", "password")):
        raise BadInput(f"{path} is not a client file: {_HINT}")
    return content


def _are_urls(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(url, str) for url in value)
