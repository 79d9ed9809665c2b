import torch

from masil.benchmark.material import draw_data, session_data
from masil.data import Framing
from masil.protocol import sessions

FRAMING = Framing(4, 4)


def test_a_draw_is_dealt_out_as_the_sessions_of_the_protocol(setting) -> None:
    drawn = draw_data(setting, [3])[3]
    expected = sessions(setting.protocol, setting.dataset, 3)
    for session, data in zip(expected, session_data(setting.protocol, drawn), strict=True):
        assert data.number == session.number
        for images, shown, labels in (
            (session.train, data.taught, data.taught.labels),
            (session.test, data.tests, data.truth),
        ):
            pixels = images.load(slice(None), FRAMING)
            assert torch.equal(labels, images.labels)
            assert torch.equal(shown.activations, pixels.flatten(1) / 255)
            assert torch.equal(shown.images.load(slice(None), FRAMING), pixels)


def test_draws_share_what_is_not_theirs(setting) -> None:
    found = draw_data(setting, [0, 1])
    assert setting.store.asked == [24, 32, 12, 12]
    assert found[0].base is found[1].base
    assert found[0].tests is found[1].tests
    assert not (found[0].shots == found[1].shots).all()
