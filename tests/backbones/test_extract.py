"""From images to activations: in order, framed, ahead of the engine, and with a sentence when something is wrong."""

import threading
from concurrent.futures import Future

import pytest
import torch

from masil.backbones import (
    MIRRORED,
    VIEWS,
    Engine,
    PendingActivations,
    View,
    extract,
    extract_with,
    find_views,
    open_engine,
    refuse_impossible,
    stream,
)
from masil.data import Framing, array_images
from masil.errors import DataError, InputError

SIDE = 16
CHOICE = {"engine": "torch", "device": "cpu"}


@pytest.mark.parametrize("batch", [None, 1, 3, 7, 100])
@pytest.mark.parametrize("engine", ["torch", "onnxruntime"])
def test_activations_in_the_order_of_the_images(tiny, images, batch, engine):
    backbone, given = tiny(), images(7)
    expected = backbone(backbone.preprocess(torch.from_numpy(given.source.pixels))).detach()
    rows = extract(backbone, given, batch=batch, engine=engine, device="cpu")
    torch.testing.assert_close(rows, expected, atol=1e-5, rtol=1e-4)


def test_images_are_framed_or_mirrored_as_asked(tiny, images):
    backbone, given = tiny(), images(3, 40, 30)
    expected = extract(
        backbone, array_images(given.load(slice(None), backbone.framing).numpy(), given.labels), **CHOICE
    )
    assert torch.equal(extract(backbone, given, **CHOICE), expected)
    given = images(3)
    wide = extract(backbone, given, framing=Framing(24, 20), **CHOICE)
    pixels = given.load(slice(None), Framing(24, 20))
    torch.testing.assert_close(wide, backbone(backbone.preprocess(pixels)).detach(), atol=1e-5, rtol=1e-4)
    mirrored = extract(backbone, given, view=MIRRORED, **CHOICE)
    flipped = backbone(backbone.preprocess(torch.from_numpy(given.source.pixels[..., ::-1].copy()))).detach()
    torch.testing.assert_close(mirrored, flipped, atol=1e-5, rtol=1e-4)


def test_no_images_no_engine(tiny, images):
    assert extract(tiny(), images(2).subset([]), device="no such device").shape == (0, 32)
    with pytest.raises(InputError, match="at least one image, not 0"):
        extract(tiny(), images(2), batch=0, **CHOICE)


@pytest.mark.parametrize(("side", "size"), [(4, 256), (1000, 3), (3000, 1)])
def test_batches_fit_into_memory(images, side, size):
    class Blank(Watched):
        def load(self, index, framing):
            return torch.zeros(index.stop - index.start, 3, 1, 1, dtype=torch.uint8)

    assert len(next(stream(Echo(), Blank(images(300, 8, 8)), Framing(side, side)))[1]) == size


def test_weights_that_have_diverged_are_named_with_the_image(tiny, images):
    backbone = tiny()
    with torch.no_grad():
        backbone.bn1.weight.fill_(torch.nan)
    with pytest.raises(InputError, match=r"image 'array\[0\]' are not all finite and >= 0, the smallest is nan"):
        extract(backbone, images(2), **CHOICE)


class Echo(Engine):
    """Gives the first pixel of each image, and says when it runs."""

    name, size = "echo", None

    def __init__(self, before=lambda: None):
        self.before = before

    def _activations(self, pixels):
        self.before()
        return pixels[:, 0, 0, :1].float()


class Watched:
    """Images that say which batches were loaded, and of which some cannot be read."""

    def __init__(self, inner, bad=()):
        self.inner, self.bad = inner, bad
        self.loaded: list[int] = []
        self.sizes: list[int] = []
        self.second = threading.Event()

    def __len__(self):
        return len(self.inner)

    def load(self, index, framing):
        pixels, faults = self.load_checked(index, framing)
        if faults:
            raise faults[min(faults)]
        return pixels

    def load_checked(self, index, framing):
        self.loaded.append(index.start)
        self.sizes.append(index.stop - index.start)
        if index.start > 0:
            self.second.set()
        bad = [position - index.start for position in self.bad if index.start <= position < index.stop]
        return self.inner.load(index, framing), {i: DataError("b.jpg is damaged or cut short.") for i in bad}

    def name(self, position):
        return self.inner.name(position)


def test_the_next_batch_is_loaded_while_the_engine_works(images):
    watched = Watched(images(6))
    engine = Echo(before=lambda: watched.second.wait(timeout=20) or pytest.fail("nothing was loaded meanwhile"))
    first, rows = next(stream(engine, watched, Framing(SIDE, SIDE), batch=2))
    assert first == 0
    assert rows[:, 0].tolist() == watched.inner.source.pixels[:2, 0, 0, 0].tolist()


def test_not_everything_is_loaded_at_once(images):
    watched = Watched(images(40))
    seen: list[int] = []
    for first, _ in stream(Echo(lambda: seen.append(len(watched.loaded))), watched, Framing(SIDE, SIDE), batch=2):
        assert len(watched.loaded) <= first // 2 + 1 + 2
    assert watched.loaded == list(range(0, 40, 2))


def test_it_can_begin_anywhere_and_ends_at_an_image_that_cannot_be_read(images):
    parts = list(stream(Echo(), images(7), Framing(SIDE, SIDE), start=3, batch=2))
    assert [first for first, _ in parts] == [3, 5]
    assert torch.cat([rows for _, rows in parts])[:, 0].tolist() == images(7).source.pixels[3:, 0, 0, 0].tolist()
    broken = stream(Echo(), Watched(images(6), bad=range(2, 6)), Framing(SIDE, SIDE), batch=2)
    assert next(broken)[0] == 0
    with pytest.raises(DataError, match=r"b\.jpg is damaged"):
        next(broken)


@pytest.mark.parametrize("engine", ["torch", "onnxruntime"])
@pytest.mark.parametrize("bad", [(), (3,), (0, 17, 18, 39), range(40)])
def test_images_that_cannot_be_read_are_noted_and_all_are_read_once(tiny, images, engine, bad):
    faults: dict[int, DataError] = {}
    runner, watched = open_engine(tiny(), engine=engine, device="cpu"), Watched(images(40), bad)
    rows = extract_with(runner, watched, Framing(SIDE, SIDE), batch=16, faults=faults)
    assert sum(watched.sizes) == 40
    good = [i for i in range(40) if i not in bad]
    torch.testing.assert_close(rows[good], extract(tiny(), images(40).subset(good), **CHOICE), atol=1e-5, rtol=1e-4)
    assert {i: str(fault) for i, fault in faults.items()} == dict.fromkeys(bad, "b.jpg is damaged or cut short.")


def test_an_engine_that_is_open_is_used_as_it_is(tiny, images):
    class Ones(Engine):
        size = None

        def _activations(self, pixels):
            return torch.ones(len(pixels), 32)

    assert torch.equal(extract(tiny(), images(5), engine=Ones(), device="no such device"), torch.ones(5, 32))


def test_what_nobody_waits_for_is_given_up(images):
    begun: list[Future[torch.Tensor]] = []

    class Slow(Echo):
        def begin(self, load, n, loader):
            begun.append(Future())
            if len(begun) == 1:
                begun[0].set_result(load(slice(0, n))[:, 0, 0, :1].float())
            return PendingActivations([begun[-1]], torch.cat)

    parts = stream(Slow(), images(20), Framing(SIDE, SIDE), batch=2)
    next(parts)
    parts.close()
    assert [one.cancelled() for one in begun] == [False, True, True]


def test_the_engine_of_every_core_keeps_order_and_names_what_cannot_be_read(tiny, images):
    pytest.importorskip("onnxruntime")
    backbone = tiny()
    engine = open_engine(backbone, engine="onnxruntime", device="cpu")
    parts = stream(engine, Watched(images(40), bad=range(16, 40)), Framing(SIDE, SIDE), batch=8)
    rows = torch.cat([next(parts)[1], next(parts)[1]])
    expected = extract(backbone, images(16), **CHOICE)
    torch.testing.assert_close(rows, expected, atol=1e-5, rtol=1e-4)
    with pytest.raises(DataError, match=r"b\.jpg is damaged"):
        next(parts)
    assert len(extract(backbone, images(1), engine=engine)) == 1


def test_of_several_rows_an_image_the_image_is_named(images):
    rows = torch.ones(6, 4)
    refuse_impossible(rows, images(4), 1, rows_per_image=2)
    rows[3, 0] = -1
    with pytest.raises(InputError, match=r"image 'array\[2\]' are not all finite and >= 0, the smallest is -1"):
        refuse_impossible(rows, images(4), 1, rows_per_image=2)


PIXELS = torch.randint(0, 256, (2, 3, 20, 20), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)
IMAGES = array_images(PIXELS.numpy(), torch.zeros(2, dtype=torch.int64))
ALL = slice(0, 2)


def test_what_the_framing_cuts_away_comes_in_and_beyond_the_picture_it_is_reflected():
    moved = View(right=0.25, down=-0.125).load(IMAGES, ALL, Framing(20, 16))
    assert torch.equal(moved[:, :, :, 2:], PIXELS[:, :, 4:20, 0:14])  # the two columns beyond the picture are reflected
    assert torch.equal(moved[:, :, :, :2], PIXELS[:, :, 4:20, [2, 1]])
    moved = View(down=0.1).load(IMAGES, ALL, Framing(20, 20))
    assert torch.equal(moved[:, :, 2:], PIXELS[:, :, :18])
    assert torch.equal(moved[:, :, :2], PIXELS[:, :, [2, 1]])


@pytest.mark.parametrize("number", VIEWS)
def test_a_set_has_as_many_different_views_as_it_says(number):
    views = find_views(number)
    assert len(set(views)) == number
    assert views[0] == View()
    squares = [view.load(IMAGES, ALL, Framing(20, 20)) for view in views]
    assert len({square.numpy().tobytes() for square in squares}) == number
    if number > 1:  # every look has its mirror image
        assert {square.flip(3).numpy().tobytes() for square in squares} == {s.numpy().tobytes() for s in squares}
