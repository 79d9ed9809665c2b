import torch
from hypothesis import given
from hypothesis import strategies as st

from masil.benchmark.material import Joined, draw_data, session_data
from masil.data import ArrayImages, Framing
from masil.protocol import sessions

FRAMING = Framing(4, 4)


def test_a_draw_is_dealt_out_as_the_sessions_of_the_protocol(setting) -> None:
    drawn = draw_data(setting, [3], images=True)[3]
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
    assert found[0].images is None


@given(st.data())
def test_joined_images_are_those_of_their_parts(data) -> None:
    lengths = data.draw(st.lists(st.integers(0, 4), min_size=1, max_size=4))
    n = sum(lengths)
    whole = ArrayImages(torch.randint(256, (n, 3, 4, 4), dtype=torch.uint8).numpy(), torch.arange(n))
    starts = [sum(lengths[:i]) for i in range(len(lengths))]
    joined = Joined([whole.subset(slice(s, s + c)) for s, c in zip(starts, lengths, strict=True)])
    index = data.draw(st.lists(st.integers(0, n - 1), max_size=6)) if n else []
    assert torch.equal(joined.load(index, FRAMING), whole.load(index, FRAMING))
    chosen = joined.subset(index)
    assert chosen.labels.tolist() == index
    assert torch.equal(chosen.load(slice(None), FRAMING), whole.load(index, FRAMING))
    assert joined.relabel(torch.arange(n) + 5).labels.tolist() == [label + 5 for label in range(n)]
    assert [joined.name(i) for i in range(n)] == [whole.name(i) for i in range(n)]


def test_joined_images_have_a_checksum_of_their_content() -> None:
    pixels = torch.randint(256, (4, 3, 4, 4), dtype=torch.uint8).numpy()
    images = ArrayImages(pixels, torch.arange(4))
    first = Joined([images.subset([0]), images.subset([1])])
    assert first.fingerprint() == Joined([images.subset([0]), images.subset([1])]).fingerprint()
    assert first.fingerprint() != Joined([images.subset([1]), images.subset([0])]).fingerprint()
