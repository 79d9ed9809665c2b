import pytest

from masil.errors import InputError, MasilError, UnknownNameError, lookup, suggest
from masil.wording import duration, percent, plural


def test_a_near_miss_is_suggested_whatever_its_case() -> None:
    assert suggest("CIFAR10", ["cifar100", "cub200"]) == "did you mean 'cifar100'?"
    assert suggest("zebra", ["cub200", "cifar100"]) == "known are: cifar100, cub200."
    assert suggest("zebra", []) == "none is known."


def test_lookup_gives_the_entry_or_a_sentence() -> None:
    table = {"cifar100": 1, "cub200": 2}
    assert lookup("data set", "cub200", table) == 2
    with pytest.raises(UnknownNameError) as caught:
        lookup("data set", "cub20", table)
    assert str(caught.value) == "There is no data set called 'cub20'; did you mean 'cub200'?"


def test_the_family_is_also_what_python_expects() -> None:
    assert issubclass(UnknownNameError, KeyError)
    assert issubclass(InputError, ValueError)
    assert all(issubclass(kind, MasilError) for kind in (UnknownNameError, InputError))


def test_numbers_in_words() -> None:
    assert [plural(n, "class") for n in (0, 1, 2)] == ["0 classes", "1 class", "2 classes"]
    assert plural(1500, "photo") == "1,500 photos"
    assert [percent(share) for share in (0.5, None)] == ["50.0 %", "–"]
    assert [duration(seconds) for seconds in (42.4, 59.7, 200, 3900)] == [
        "42 s",
        "1 min 00 s",
        "3 min 20 s",
        "1 h 05 min",
    ]
    assert duration(4.24, digits=1) == "4.2 s"
