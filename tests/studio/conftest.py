"""A small model of coloured patterns, files to send, and a client for its studio."""

import io

import numpy as np
import pytest
from PIL import Image
from starlette.testclient import TestClient

from masil.backbones import create
from masil.data import Framing
from masil.learner import Masil
from masil.studio import Limits, create_app

HOST = "http://127.0.0.1"


@pytest.fixture(scope="session", autouse=True)
def _no_probe():
    """Take PyTorch for granted instead of measuring for seconds which engine is faster."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MASIL_ENGINE", "torch")
        yield


def picture(kind, seed=0, side=32):
    """A pattern of its own for each kind, with noise of its own for each seed."""
    pattern = np.random.default_rng(kind).integers(0, 255, (4, 4, 3)).repeat(side // 4, 0).repeat(side // 4, 1)
    noise = np.random.default_rng([kind, seed]).normal(0, 30, pattern.shape)
    return (pattern + noise).clip(0, 255).astype(np.uint8)


@pytest.fixture(scope="session")
def photo():
    """Give the PNG of a picture of a kind."""

    def make(kind, seed=0, side=32, form="PNG"):
        file = io.BytesIO()
        Image.fromarray(picture(kind, seed, side)).save(file, form)
        return file.getvalue()

    return make


@pytest.fixture(scope="session")
def files(photo):
    """Give n photos of a kind as httpx sends them."""

    def make(kind, n=1, field="images"):
        return [(field, (f"{seed}.png", photo(kind, 100 + seed), "image/png")) for seed in range(n)]

    return make


@pytest.fixture(scope="session")
def fitted_file(tmp_path_factory):
    """A model of five kinds, k0 … k4; not to be changed, see `model_file`."""
    pixels = np.stack([picture(kind, seed) for kind in range(5) for seed in range(12)])
    labels = [f"k{kind}" for kind in range(5) for _ in range(12)]
    model = Masil(create("resnet20", seed=1, framing=Framing(32, 32)), concepts=6, device="cpu", alpha=0.3)
    path = tmp_path_factory.mktemp("fitted") / "kinds.masil"
    model.fit(pixels, labels, taught_by="Ada").save(path)
    return path


@pytest.fixture
def model_file(fitted_file, tmp_path):
    path = tmp_path / "kinds.masil"
    path.write_bytes(fitted_file.read_bytes())
    return path


@pytest.fixture
def studio(model_file):
    """Open studios of the model; each takes what `create_app` takes."""
    opened = []

    def make(**settings):
        settings.setdefault("limits", Limits(seconds=20))
        client = TestClient(create_app(model_file, device="cpu", **settings), base_url=HOST)
        opened.append(client.__enter__())
        return client

    yield make
    for client in opened:
        client.__exit__(None, None, None)


@pytest.fixture
def client(studio):
    return studio()
