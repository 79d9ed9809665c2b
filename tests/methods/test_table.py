import pytest

from masil.errors import InputError, UnknownNameError
from masil.methods import Teen, make


def test_a_method_is_made_with_its_parameters() -> None:
    method = make("teen", total=9, seed=4, a=0.3)
    assert isinstance(method, Teen)
    assert (method.total, method.seed, method.a) == (9, 4, 0.3)


def test_wrong_names_are_answered_with_the_nearest() -> None:
    with pytest.raises(UnknownNameError, match="There is no method called 'ranpack'; did you mean 'ranpac'"):
        make("ranpack")
    with pytest.raises(InputError, match="Method 'teen' has no parameter 'temprature'; did you mean 'temperature'"):
        make("teen", temprature=2.0)


def test_room_for_all_classes_must_be_asked_for() -> None:
    with pytest.raises(InputError, match="Method 'fact' must know in advance how many classes will ever come"):
        make("fact")
