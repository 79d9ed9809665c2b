import torch
from hypothesis import given
from hypothesis import strategies as st

from masil.benchmark.material import Joined, lessons, materials
from masil.data import ArrayImages, Framing
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
