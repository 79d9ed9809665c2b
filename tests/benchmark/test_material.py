import torch

from masil.benchmark.material import lessons, materials
from masil.data import Framing
from masil.protocol import sessions

FRAMING = Framing(4, 4)


def test_lessons_are_the_sessions_of_the_protocol(setting) -> None:
    arrays = materials(setting, [3])[3]
    for session, lesson in zip(
        sessions(setting.protocol, setting.dataset, 3), lessons(setting.protocol, arrays), strict=True
    ):
        assert lesson.number == session.number
        for images, activations, labels in (
            (session.train, lesson.activations, lesson.labels),
            (session.test, lesson.tests, lesson.truth),
        ):
            assert torch.equal(labels, images.labels)
            assert torch.equal(activations, images.load(slice(None), FRAMING).flatten(1) / 255)


def test_draws_share_what_is_not_theirs(setting) -> None:
    found = materials(setting, [0, 1])
    assert setting.store.asked == [24, 32, 12, 12]
    assert found[0]["base"] is found[1]["base"]
    assert found[0]["tests"] is found[1]["tests"]
    assert not (found[0]["shots"] == found[1]["shots"]).all()
