import numpy as np
import torch

from masil.benchmark import play
from masil.data import ArrayImages, Dataset, Images
from masil.methods import Method, NearestMean
from masil.protocol import Protocol, sessions

SHAPE = Protocol("small", "points", base_classes=4, sessions=2, way=2, shot=3)
CENTRES = torch.rand(8, 6, generator=torch.Generator().manual_seed(0))


def points() -> Dataset:
    def part(each: int) -> ArrayImages:
        labels = torch.arange(8).repeat(each)
        return ArrayImages(np.zeros((len(labels), 3, 1, 1), np.uint8), labels)

    return Dataset("points", tuple("abcdefgh"), part(5), part(4))


class Camera:
    """Gives each image its class's centre, and notes what it was shown."""

    def __init__(self) -> None:
        self.shown: list[int] = []

    def __call__(self, images: Images) -> torch.Tensor:
        self.shown.append(len(images))
        return CENTRES[images.labels]


class Recorder(Method):
    """Notes what each session brings and predicts the newest class."""

    def __init__(self) -> None:
        self.taught: list[list[int]] = []

    def fit(self, activations: torch.Tensor, labels: torch.Tensor) -> None:
        self.taught = [labels.tolist()]

    def learn(self, activations: torch.Tensor, labels: torch.Tensor) -> None:
        self.taught.append(labels.tolist())

    def predict(self, activations: torch.Tensor) -> torch.Tensor:
        return torch.full((len(activations),), max(self.taught[-1]))


def test_a_method_sees_each_session_once_and_each_test_image_is_seen_once() -> None:
    camera, method = Camera(), Recorder()
    played = list(play(SHAPE, sessions(SHAPE, points(), draw=0), method, camera))
    assert [sorted(set(labels)) for labels in method.taught] == [[0, 1, 2, 3], [4, 5], [6, 7]]
    assert [len(labels) for labels in method.taught] == [20, 6, 6]
    assert camera.shown == [20, 16, 6, 8, 6, 8]
    assert [p.score.total for p in played] == [16, 24, 32]
    assert [p.score.accuracy for p in played] == [1 / 4, 1 / 6, 1 / 8]


def test_separable_classes_are_all_right() -> None:
    played = list(play(SHAPE, sessions(SHAPE, points(), draw=0), NearestMean(), Camera()))
    assert [p.score.accuracy for p in played] == [1, 1, 1]
    assert [p.session.number for p in played] == [0, 1, 2]
