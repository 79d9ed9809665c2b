import json
from dataclasses import FrozenInstanceError, fields

import pytest
from hypothesis import given
from hypothesis import strategies as st

from masil.errors import InputError
from masil.hardware import Hardware
from masil.hardware.hardware import DEVICES, ENGINES, ISA_LADDER, PRECISIONS

text = st.text(max_size=20)
answers = st.builds(
    Hardware,
    device=st.sampled_from(DEVICES),
    precisions=st.dictionaries(st.sampled_from(DEVICES), st.sampled_from(PRECISIONS)),
    onednn_isa=st.sampled_from((None, *ISA_LADDER)),
    threads=st.integers(1, 512),
    engine=st.sampled_from(ENGINES),
    torch=text,
    key=text,
    when=text,
    settled=st.booleans(),
    compile=st.none() | st.booleans(),
    measurements=st.dictionaries(text, st.floats(allow_nan=False, allow_infinity=False)),
    failures=st.dictionaries(text, text),
)
EXAMPLE = Hardware("cpu", {"cpu": "float32"}, None, 2, "torch", "2.13.0", "abc", "2026-01-01T00:00:00+00:00")


@given(answers)
def test_json_gives_an_equal_answer_back(hardware):
    assert Hardware.from_json(json.loads(json.dumps(hardware.to_json()))) == hardware


@given(
    st.sampled_from([field.name for field in fields(Hardware)]),
    st.sampled_from([-1, 1.5, "tpu", ["cpu"], {"cpu": 3}, {"tpu": "float32"}]),
)
def test_a_damaged_answer_is_refused_by_the_field(name, value):
    damaged = EXAMPLE.to_json() | {name: value}
    free_text = name in ("torch", "key", "when") and isinstance(value, str)
    free_entries = (name == "measurements" and value == {"cpu": 3}) or (
        name == "failures" and value == {"tpu": "float32"}
    )
    if free_text or free_entries:
        Hardware.from_json(damaged)
    else:
        with pytest.raises(InputError, match=f"answer's {name} cannot be"):
            Hardware.from_json(damaged)


@pytest.mark.parametrize("value", [None, 3, [], {}, EXAMPLE.to_json() | {"more": 1}, {"device": "cpu"}])
def test_an_answer_of_another_shape_is_refused(value):
    with pytest.raises(InputError, match="A hardware answer has the fields device, precisions, "):
        Hardware.from_json(value)


def test_the_precision_is_that_of_the_device_and_float32_where_none_is_known():
    assert Hardware.from_json(EXAMPLE.to_json() | {"precisions": {"cpu": "bfloat16"}}).precision == "bfloat16"
    assert Hardware.from_json(EXAMPLE.to_json() | {"precisions": {}}).precision == "float32"


def test_an_answer_does_not_change():
    with pytest.raises(FrozenInstanceError):
        EXAMPLE.device = "cuda"
