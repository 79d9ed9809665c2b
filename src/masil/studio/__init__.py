"""A web page and a REST interface over one model."""

from masil.studio.app import create_app
from masil.studio.request_guard import AccessPolicy, Limits
from masil.studio.server import serve
