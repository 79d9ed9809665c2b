"""The routes: REST below /api with an OpenAPI document, and the page."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from fastapi import APIRouter, Body, Depends, FastAPI, File, Form, Query, Request, Response, UploadFile
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from fastapi.security import HTTPBearer
from starlette.exceptions import HTTPException

from masil import __version__
from masil.errors import MasilError
from masil.studio import actions
from masil.studio.answers import Card, Forgotten, Health, Learnt, Predictions, Problem, Undo, Undone, Why
from masil.studio.card import card
from masil.studio.desk import Desk
from masil.studio.door import Door
from masil.studio.drawing import COLOURS
from masil.studio.guard import Guard
from masil.studio.keeper import Keeper
from masil.studio.limits import Limits
from masil.studio.metrics import TYPE, Metrics
from masil.studio.pages import pages
from masil.studio.photos import decode_uploads
from masil.studio.refusal import status_of

_LOG = logging.getLogger(__name__)
_METRICS: dict[int | str, dict[str, Any]] = {200: {"content": {TYPE: {"schema": {"type": "string"}}}}}
_PROBLEMS: dict[int | str, dict[str, Any]] = {
    code: {"model": Problem} for code in (400, 401, 403, 404, 405, 408, 409, 413, 421, 422, 500, 503, 507)
}
IMAGES = File(description="JPEG, PNG, WebP, GIF, BMP or TIFF, known by their content. None is kept.")
TAUGHT_BY = Form(max_length=200, description="Who teaches; goes into the log.")
BY = Query(max_length=200, description="Who asks for it; goes into the log.")


def create_app(
    model: str | Path, *, guard: Guard | None = None, limits: Limits | None = None, device: str = "auto"
) -> Door:
    """Make the studio of one model file, as an ASGI application."""
    guard, limits = guard or Guard(), limits or Limits()
    keeper, desk, metrics = Keeper(Path(model), device=device), Desk(limits.seconds), Metrics()

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        yield
        desk.close()

    app = FastAPI(
        title="masil studio", version=__version__, lifespan=lifespan, responses=_PROBLEMS,
        openapi_url="/api/openapi.json", docs_url=None, redoc_url=None,  # their pages would come from a CDN
        description="Teach an image classifier new classes from five photos each, ask it why, and take it back.",
    )  # fmt: skip
    _tell_errors(app)
    # For the document only: the door looks at the token.
    security = [] if guard.token is None else [Depends(HTTPBearer(auto_error=False))]
    app.include_router(_asking(keeper, desk, limits), dependencies=security)
    app.include_router(_teaching(keeper, desk, limits), dependencies=security)
    app.include_router(_watching(keeper, metrics, limits), dependencies=security)
    app.include_router(_open())
    return Door(app, guard, limits, metrics)


def _asking(keeper: Keeper, desk: Desk, limits: Limits) -> APIRouter:
    router = APIRouter(prefix="/api", tags=["ask"])

    @router.post("/predict")
    async def predict(
        images: Annotated[list[UploadFile], IMAGES], top: Annotated[int, Form(ge=1, le=50)] = 5
    ) -> Predictions:
        """Give the most probable classes of each image."""
        uploads = await _read(images)

        def work() -> Predictions:
            return actions.predict(keeper.model, decode_uploads(uploads, keeper.framing, limits), top)

        return await desk.ask(work)

    @router.post("/explain")
    async def explain(
        image: Annotated[UploadFile, IMAGES], concepts: Annotated[int, Form(ge=1, le=len(COLOURS))] = 3
    ) -> Why:
        """Say which concepts spoke for the class of an image against the runner-up, and where they lie."""
        uploads = await _read([image])

        def work() -> Why:
            return actions.explain(keeper.model, decode_uploads(uploads, keeper.framing, limits), concepts)

        return await desk.ask(work)

    return router


def _teaching(keeper: Keeper, desk: Desk, limits: Limits) -> APIRouter:
    router = APIRouter(prefix="/api", tags=["teach"])

    @router.post("/learn")
    async def learn(
        name: Annotated[str, Form(description="Of the class.")],
        images: Annotated[list[UploadFile], IMAGES],
        taught_by: Annotated[str, TAUGHT_BY] = "",
        update: Annotated[bool, Form(description="Whether the class may be known already.")] = False,
    ) -> Learnt:
        """Teach one class. The answer comes once the model is saved; until then the previous one is asked."""
        uploads = await _read(images)

        def work() -> Learnt:
            photos = decode_uploads(uploads, keeper.framing, limits)
            return actions.learn(keeper, photos, name, taught_by=taught_by, update=update, limits=limits)

        return await desk.teach(work)

    @router.post("/undo")
    async def undo(wish: Annotated[Undo | None, Body()] = None) -> Undone:
        """Take back the last session as if it had not been."""
        meant = wish or Undo()
        return await desk.teach(partial(actions.undo, keeper, meant.session, meant.by))

    @router.delete("/classes/{name:path}")
    async def forget(name: str, by: Annotated[str | None, BY] = None) -> Forgotten:
        """Erase a class from every session. This cannot be undone."""
        return await desk.teach(partial(actions.forget, keeper, name, by))

    return router


def _watching(keeper: Keeper, metrics: Metrics, limits: Limits) -> APIRouter:
    router = APIRouter(prefix="/api", tags=["model"])

    @router.get("/info")
    def info() -> Card:
        """Give the model card: classes, sessions, memory, and the log."""
        return card(keeper.model, keeper.path.name, limits)

    @router.get("/metrics", response_class=Response, responses=_METRICS)
    def read_metrics() -> Response:
        """Give counts and times as Prometheus reads them."""
        return Response(metrics.text(keeper.model), headers={"content-type": TYPE})

    return router


def _open() -> APIRouter:
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
