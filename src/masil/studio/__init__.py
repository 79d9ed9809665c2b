"""A web page and a REST interface over one model."""

from masil.studio.app import create_app
from masil.studio.guard import Guard
from masil.studio.limits import Limits
from masil.studio.server import serve

__all__ = ["Guard", "Limits", "create_app", "serve"]
