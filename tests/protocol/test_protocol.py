import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from masil.errors import InputError
from masil.protocol import PROTOCOLS, Protocol

shapes = st.builds(
    Protocol,
    name=st.just("any"),
    dataset=st.just("any"),
    base_classes=st.integers(1, 30),
    sessions=st.integers(0, 12),
    way=st.integers(1, 9),
    shot=st.integers(1, 9),
)


@given(shapes)
def test_every_class_is_taught_exactly_once_and_session_of_says_when(protocol: Protocol) -> None:
    taught = [label for session in range(protocol.sessions + 1) for label in protocol.labels(session)]
    assert taught == list(range(protocol.classes))
    for session in range(protocol.sessions + 1):
        own = torch.tensor(protocol.labels(session))
        assert protocol.session_of(own).tolist() == [session] * len(own)
        assert list(protocol.seen(session)) == taught[: protocol.labels(session).stop]


@pytest.mark.parametrize(
    ("name", "base", "sessions", "way", "classes"),
    [
        ("cifar100", 60, 8, 5, 100),
        ("miniimagenet", 60, 8, 5, 100),
        ("cub200", 100, 10, 10, 200),
        ("characters", 32, 6, 5, 62),
        ("omniglot", 1200, 40, 10, 1600),
    ],
)
def test_the_known_protocols_have_the_shapes_of_the_field(
    name: str, base: int, sessions: int, way: int, classes: int
) -> None:
    protocol = PROTOCOLS[name]
    assert (protocol.base_classes, protocol.sessions, protocol.way, protocol.classes) == (base, sessions, way, classes)
    assert protocol.shot == 5


@pytest.mark.parametrize("field", ["base_classes", "way", "shot"])
def test_sizes_below_one_are_refused(field: str) -> None:
    sizes = {"base_classes": 3, "sessions": 2, "way": 1, "shot": 1} | {field: 0}
    with pytest.raises(InputError, match=f"'mine' has {field} = 0; it needs a whole number >= 1"):
        Protocol("mine", "any", **sizes)


def test_an_order_names_each_class_once_and_all_of_them() -> None:
    with pytest.raises(InputError, match="teaches class 1 twice"):
        Protocol("mine", "any", base_classes=2, sessions=1, way=1, shot=1, order=(0, 1, 1))
    with pytest.raises(InputError, match=r"orders 2 classes but has 3 \(2 \+ 1 × 1\)"):
        Protocol("mine", "any", base_classes=2, sessions=1, way=1, shot=1, order=(0, 1))


def test_a_session_past_the_last_is_refused() -> None:
    with pytest.raises(InputError, match="has sessions 0 … 8; there is no session 9"):
        PROTOCOLS["cifar100"].labels(9)
