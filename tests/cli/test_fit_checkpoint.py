"""`masil fit --checkpoint` on folders whose names sort otherwise than they count, then `evaluate`."""

import json

import pytest
from starlette.testclient import TestClient

from masil.data import Augmentation, read_folder
from masil.errors import InputError
from masil.studio import create_app
from masil.training import FrameLoss, Monitoring, MuonSettings, Recipe, Sgd, train

CLASSES = {f"class {number}": number for number in range(12)}
RECIPE = Recipe(
    name="tiny", stages=((6, 16),), backbone="resnet20", width=0.5, framing=(16, 16), batch=16, sgd=Sgd(lr=0.05),
    muon=MuonSettings(lr=0.05), augmentation=Augmentation(crop="pad", pad=1), watch=Monitoring(nc_every=0),
    loss=FrameLoss(embedding=16).to_json(), compile=False,
)  # fmt: skip


@pytest.fixture(scope="module")
def base(photos, tmp_path_factory):
    """Photos, and base sessions with and without the names of the classes."""
    place = tmp_path_factory.mktemp("base")
    data = read_folder(photos(place / "photos", CLASSES, 20))
    train(data.train, RECIPE, place / "named", device="cpu", names=data.classes)
    train(data.train, RECIPE, place / "nameless", device="cpu")
    return place


@pytest.mark.parametrize("checkpoint", ["named", "nameless"])
def test_every_folder_gets_the_vector_that_it_was_trained_to(masil, photos, base, tmp_path, checkpoint):
    model, options = tmp_path / "m.masil", ("--checkpoint", base / checkpoint, "--concepts", 4, "--device", "cpu")
    done = masil("fit", base / "photos", "-m", model, *options)
    assert done.exit_code == 0, done.output
    test = photos(tmp_path / "test", CLASSES, 4, seed=5)
    assert json.loads(masil("evaluate", model, test, "--json", "--device", "cpu").stdout)["accuracy"] > 0.8
    with TestClient(create_app(model, device="cpu"), base_url="http://127.0.0.1") as client:
        for name in ("class 2", "class 10"):
            file = next((test / name).iterdir())
            answer = client.post("/api/predict", files=[("images", (file.name, file.read_bytes(), "image/png"))])
            assert answer.json()["predictions"][0]["top"][0]["label"] == name


def test_folders_with_other_names_are_refused_before_anything_is_learnt(masil, photos, base, tmp_path):
    other = {f"bird {number}": number for number in range(12)}
    options = ("--checkpoint", base / "named", "--device", "cpu")
    with pytest.raises(
        InputError, match=r"trained on 12 classes, 'class 0', .* are missing and 'bird 0', .* not among"
    ):
        masil("fit", photos(tmp_path / "other", other, 3), "-m", tmp_path / "m.masil", *options)
    assert not (tmp_path / "m.masil").exists()
