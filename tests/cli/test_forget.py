import json

import pytest

from masil.errors import InputError
from masil.learner import Masil


def test_a_class_is_erased(masil, birds, known):
    before = birds.read_bytes()
    assert "'bird c' (8 photos) would be forgotten" in masil("forget", birds, "bird c", "--dry-run").stdout
    assert birds.read_bytes() == before
    assert json.loads(masil("forget", birds, "bird c", "--json").stdout)["images"] == 8
    assert Masil.load(birds).classes_.tolist() == [name for name in known if name != "bird c"]


@pytest.mark.parametrize("name", ["../bird c", "🐦", "x" * 300])
def test_a_class_that_is_not_there(masil, birds, name):
    with pytest.raises(InputError, match="There is no class .* to forget; (known are: bird a|did you mean 'bird c')"):
        raise masil("forget", birds, name).exception


def test_a_class_may_be_called_like_an_option(masil, birds):
    with pytest.raises(InputError, match="There is no class '--json' to forget"):
        raise masil("forget", birds, "--", "--json").exception
