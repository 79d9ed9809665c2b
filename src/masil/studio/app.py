"""The routes: REST below /api with an OpenAPI document, and the page."""

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cache, partial
from importlib.resources import files
from pathlib import Path, PurePath
from typing import Annotated, Any

from fastapi import APIRouter, Body, Depends, FastAPI, File, Form, Query, Request, Response, UploadFile
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from fastapi.security import HTTPBearer
from starlette.exceptions import HTTPException

from masil import __version__
from masil.errors import MasilError
from masil.studio import actions
from masil.studio.actions import COLOURS
from masil.studio.metrics import TYPE, Metrics
from masil.studio.request_guard import AccessPolicy, Limits, RequestGuard, status_of
from masil.studio.schemas import Card, Forgotten, Health, Learnt, Predictions, Problem, Undo, Undone, Why
from masil.studio.served_model import ServedModel, WorkQueue

_LOG = logging.getLogger(__name__)
_METRICS: dict[int | str, dict[str, Any]] = {200: {"content": {TYPE: {"schema": {"type": "string"}}}}}
_PROBLEMS: dict[int | str, dict[str, Any]] = {
    code: {"model": Problem} for code in (400, 401, 403, 404, 405, 408, 409, 413, 421, 422, 500, 503, 507)
}
IMAGES = File(description="JPEG, PNG, WebP, GIF, BMP or TIFF, known by their content. None is kept.")
TAUGHT_BY = Form(max_length=200, description="Who teaches; goes into the log.")
BY = Query(max_length=200, description="Who asks for it; goes into the log.")
# Written out, because a system's own table of types may call a script plain text, and browsers then refuse to run it.
TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}


def create_app(
    model: str | Path, *, access: AccessPolicy | None = None, limits: Limits | None = None, device: str = "auto"
) -> RequestGuard:
    """Make the studio of one model file, as an ASGI application."""
    access, limits = access or AccessPolicy(), limits or Limits()
    served, queue, metrics = ServedModel(Path(model), device=device), WorkQueue(limits.seconds), Metrics()

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        yield
        queue.close()

    app = FastAPI(
        title="masil studio", version=__version__, lifespan=lifespan, responses=_PROBLEMS,
        openapi_url="/api/openapi.json", docs_url=None, redoc_url=None,  # their pages would come from a CDN
        description="Teach an image classifier new classes from five photos each, ask it why, and take it back.",
    )  # fmt: skip
    _tell_errors(app)
    # For the document only: the guard checks the token.
    security = [] if access.token is None else [Depends(HTTPBearer(auto_error=False))]
    app.include_router(_for_users(served, queue, metrics, limits), dependencies=security)
    app.include_router(_for_everybody())
    return RequestGuard(app, access, limits, metrics)


def _for_users(served: ServedModel, queue: WorkQueue, metrics: Metrics, limits: Limits) -> APIRouter:
    """Give the routes that need the token, where there is one."""
    router = APIRouter(prefix="/api")

    @router.post("/predict", tags=["ask"])
    async def predict(
        images: Annotated[list[UploadFile], IMAGES], top: Annotated[int, Form(ge=1, le=50)] = 5
    ) -> Predictions:
        """Give the most probable classes of each image."""
        uploads = await _read(images)
        return await queue.read(lambda: actions.predict(served, uploads, top, limits))

    @router.post("/explain", tags=["ask"])
    async def explain(
        image: Annotated[UploadFile, IMAGES], concepts: Annotated[int, Form(ge=1, le=len(COLOURS))] = 3
    ) -> Why:
        """Say which concepts spoke for the class of an image against the runner-up, and where they lie."""
        (upload,) = await _read([image])
        return await queue.read(lambda: actions.explain(served, upload, concepts, limits))

    @router.post("/learn", tags=["teach"])
    async def learn(
        name: Annotated[str, Form(description="Of the class.")],
        images: Annotated[list[UploadFile], IMAGES],
        taught_by: Annotated[str, TAUGHT_BY] = "",
        update: Annotated[bool, Form(description="Whether the class may be known already.")] = False,
    ) -> Learnt:
        """Teach one class. The answer comes once the model is saved; until then the previous one is asked."""
        uploads = await _read(images)
        return await queue.change(
            lambda: actions.learn(served, uploads, name, taught_by=taught_by, update=update, limits=limits)
        )

    @router.post("/undo", tags=["teach"])
    async def undo(wish: Annotated[Undo | None, Body()] = None) -> Undone:
        """Take back the last session as if it had not been."""
        meant = wish or Undo()
        return await queue.change(partial(actions.undo, served, meant.session, meant.by))

    @router.delete("/classes/{name:path}", tags=["teach"])
    async def forget(name: str, by: Annotated[str | None, BY] = None) -> Forgotten:
        """Erase a class from every session. This cannot be undone."""
        return await queue.change(partial(actions.forget, served, name, by))

    @router.get("/info", tags=["model"])
    def info() -> Card:
        """Give the model card: classes, sessions, memory, and the log."""
        return actions.card(served.model, served.path.name, limits)

    @router.get("/metrics", tags=["model"], response_class=Response, responses=_METRICS)
    def read_metrics() -> Response:
        """Give counts and times as Prometheus reads them."""
        return Response(metrics.text(served.model), headers={"content-type": TYPE})

    return router


def _for_everybody() -> APIRouter:
    """Give the page, which asks for the token itself, and whether the studio answers."""
    router = APIRouter()

    @router.get("/api/health", tags=["model"])
    async def health() -> Health:
        """Say that the studio answers."""
        return Health()

    @router.get("/", include_in_schema=False)
    @router.get("/static/{name}", include_in_schema=False)
    async def static(name: str = "index.html") -> Response:
        if name not in pages():
            raise HTTPException(404)
        content, kind = pages()[name]
        return Response(content, headers={"content-type": kind})

    return router


@cache
def pages() -> dict[str, tuple[bytes, str]]:
    """Give the content and the type of each file of the page, by its name; nothing else is ever read."""
    folder = files("masil.studio").joinpath("static")
    return {file.name: (file.read_bytes(), TYPES[PurePath(file.name).suffix]) for file in folder.iterdir()}


async def _read(images: list[UploadFile]) -> list[tuple[str, bytes]]:
    return [(image.filename or "", await image.read()) for image in images]


def _tell_errors(app: FastAPI) -> None:
    def problem(status: int, sentence: str) -> JSONResponse:
        return JSONResponse(Problem(error=sentence).model_dump(), status)

    @app.exception_handler(MasilError)
    async def of_masil(_request: Request, error: MasilError) -> JSONResponse:
        return problem(status_of(error), str(error))

    @app.exception_handler(RequestValidationError)
    async def of_form(_request: Request, error: RequestValidationError) -> JSONResponse:
        first = error.errors()[0]
        if first["type"] == "json_invalid":
            return problem(422, f"The request is not valid JSON: {first['ctx']['error']}.")
        field = ".".join(str(part) for part in first["loc"][1:]) or str(first["loc"][0])
        if first["type"] == "missing":
            told = f"The request has no '{field}', or an empty one; send a form (multipart/form-data) with it."
            return problem(422, told)
        return problem(422, f"The request's '{field}' does not fit: {first['msg']}.")

    @app.exception_handler(HTTPException)
    async def of_http(request: Request, error: HTTPException) -> JSONResponse:
        path = request.url.path[:80]
        known = {404: f"There is nothing at {path}.", 405: f"{path} does not take {request.method} requests."}
        sentence = known.get(error.status_code, f"{str(error.detail).rstrip('.')}.")
        return JSONResponse({"error": sentence}, error.status_code, headers=error.headers)

    @app.exception_handler(Exception)
    async def of_ours(_request: Request, error: Exception) -> JSONResponse:
        _LOG.error("A request failed.", exc_info=error)
        return problem(500, "Something went wrong inside the studio; nothing was changed. Its log says what.")
