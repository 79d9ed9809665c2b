"""What options rule each other out, found before any work is done."""

import os

import pytest

from masil.errors import InputError, StorageError


@pytest.mark.parametrize(
    "command", [["fit", "photos", "-m", "m.masil"], ["tune", "photos"], ["run"], ["bench", "-o", "o"]]
)
@pytest.mark.parametrize("given", [["--backbone", "resnet20"], ["--weights", "w.pt"]])
def test_a_backbone_beside_a_checkpoint_is_refused(masil, command, given):
    with pytest.raises(
        InputError, match=f"{given[0]} {given[1]} has no effect here: --checkpoint base brings a backbone"
    ):
        masil(*command, "--checkpoint", "base", *given)


@pytest.mark.parametrize("seed", [-1, 2**64])
@pytest.mark.parametrize("command", [["fit", "photos", "-m", "m.masil"], ["tune", "photos"], ["run"], ["bench"]])
def test_a_seed_that_no_generator_takes_is_refused(masil, command, seed):
    with pytest.raises(InputError, match=f"The seed is {seed}; it must be a whole number from 0"):
        masil(*command, "--seed", seed)


@pytest.mark.parametrize("given", [["--shots", -1], ["--plays", 0]])
def test_numbers_out_of_range_are_refused(masil, given):
    assert masil("tune", "photos", *given).exit_code == 2


@pytest.mark.parametrize("command", ["run", "bench"])
def test_a_backbone_beside_a_recipe_is_refused(masil, command, tmp_path):
    with pytest.raises(
        InputError, match="--backbone resnet20 has no effect here: --recipe characters-fast names a backbone"
    ):
        masil(command, "-o", tmp_path, "--recipe", "characters-fast", "--backbone", "resnet20")


def test_a_folder_of_data_sets_has_no_say_in_a_folder_of_photos(masil, photos, tmp_path):
    with pytest.raises(
        InputError, match="--data .* has no effect here: .*photos is a folder of photos and no protocol"
    ):
        masil("tune", photos(tmp_path / "photos", {"a": 0, "b": 1}, 2), "--data", tmp_path)


@pytest.mark.parametrize("command", [["run"], ["bench"], ["train", "characters"]])
@pytest.mark.parametrize("below", ["", "deeper/still"])
def test_a_file_in_the_place_of_the_folder_is_said_before_anything_is_played(masil, tmp_path, command, below):
    (tmp_path / "report.html").write_text("precious")
    with pytest.raises(
        StorageError, match=r"cannot be written: .*report\.html is a file and no folder; choose another"
    ):
        masil(*command, "-o", tmp_path / "report.html" / below)
    assert (tmp_path / "report.html").read_text() == "precious"


@pytest.mark.parametrize(
    "command",
    [
        ["run", "-o"],
        ["report", "runs", "--keep"],
        ["fit", "photos", "-m"],
        ["export", "birds.masil", "--onnx"],
        ["explain", "birds.masil", "photo.png", "-o"],
    ],
)
def test_a_place_that_cannot_be_written_is_said_before_any_work(masil, tmp_path, monkeypatch, command):
    (tmp_path / "file").write_text("precious")
    with pytest.raises(StorageError, match=r"file/new\.png cannot be written: .*file is a file and no folder; choose"):
        masil(*command, tmp_path / "file" / "new.png")
    really = os.access
    monkeypatch.setattr(os, "access", lambda place, mode: mode == os.F_OK and really(place, mode))
    with pytest.raises(StorageError, match=f"cannot be written: no permission to write in {tmp_path}; choose"):
        masil(*command, tmp_path / "new" / "new.png")
