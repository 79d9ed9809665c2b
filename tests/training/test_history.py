import pytest

from masil.training.history import duration, sentence, tidy


def test_what_is_no_number_is_left_out() -> None:
    assert tidy({"a": 1, "b": float("nan"), "c": None, "d": 1 / 3}) == {"a": 1, "d": 0.333333}


def test_a_row_is_said_in_one_line() -> None:
    row = {
        "epoch": 3,
        "pixels": 16,
        "loss": 1.2345,
        "accuracy": 0.5,
        "nc1": 0.25,
        "images_per_second": 171.6,
        "seconds": 75,
    }
    assert sentence(row, 21, 4000.0) == (
        "epoch 3/21 · 16 px · loss 1.234 · held-out accuracy 50.0 % · NC1 0.25 · 172 images/s · "
        "1 min 15 s, 1 h 06 min left"
    )


@pytest.mark.parametrize(
    ("seconds", "said"), [(0.4, "0 s"), (59.6, "1 min 00 s"), (3599, "59 min 59 s"), (3661, "1 h 01 min")]
)
def test_durations_are_said_as_people_say_them(seconds: float, said: str) -> None:
    assert duration(seconds) == said
