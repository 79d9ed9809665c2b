"""Each route does what it says, tells errors as sentences, and the model on disk is the one that is served."""

from dataclasses import replace

import numpy as np
import pytest

from masil.learner import Masil
from masil.studio import Limits


def test_predict_names_the_class_of_each_image(client, files):
    answer = client.post("/api/predict", files=[*files(2), *files(4)], data={"top": "3"}).json()
    assert [each["label"] for each in answer["predictions"]] == ["k2", "k4"]
    assert answer["predictions"][0]["image"] == "Image 1 (0.png)"
    for each in answer["predictions"]:
        shares = [share["probability"] for share in each["top"]]
        assert len(shares) == 3
        assert shares == sorted(shares, reverse=True)
        assert each["confidence"] == shares[0]
    assert answer["revision"] == 1


@pytest.mark.parametrize("kind", [3, 9])  # one that was taught, and one that was not
def test_predict_says_what_the_model_says(client, files, photo, model_file, tmp_path, kind):
    (tmp_path / "a.png").write_bytes(photo(kind, 100))
    answers = Masil.load(model_file, device="cpu").answer([tmp_path / "a.png"])
    found = client.post("/api/predict", files=files(kind), data={"top": "5"}).json()["predictions"][0]
    by_label = {share["label"]: share["probability"] for share in found["top"]}
    np.testing.assert_allclose([by_label[label] for label in answers.labels], answers.probabilities[0], atol=1e-6)
    assert found["known"] == pytest.approx(float(answers.probability_known()), abs=1e-5)
    assert found["unknown"] == bool(answers.rejected())


def test_a_class_is_taught_saved_and_recognised(client, files, model_file):
    answer = client.post("/api/learn", files=files(7, 5), data={"name": " owl 🦉 ", "taught_by": "Grace"})
    assert answer.status_code == 200, answer.text
    learnt = answer.json()
    assert (learnt["label"], learnt["images"], learnt["recognised"], learnt["revision"]) == ("owl 🦉", 5, 5, 2)
    assert learnt["session"]["who"] == "Grace"
    assert client.post("/api/predict", files=files(7)).json()["predictions"][0]["label"] == "owl 🦉"
    on_disk = Masil.load(model_file, device="cpu")
    assert on_disk.sessions_[-1].images == (("owl 🦉", 5),)
    vectors = on_disk.memory_.vectors
    cosines = (vectors[:5] @ vectors[5]).tolist()
    near = learnt["confused_with"]
    assert [each["cosine"] for each in near] == pytest.approx(sorted(cosines, reverse=True)[:3], abs=1e-5)
    assert near[0]["label"] == f"k{cosines.index(max(cosines))}"


def test_a_known_class_is_taught_more_only_when_that_is_meant(client, files):
    for photos in (files(2, 2), [("images", ("x.png", b"no photo", "image/png"))]):  # the name comes before the pixels
        known = client.post("/api/learn", files=photos, data={"name": "k2"})
        assert known.status_code == 422
        assert "The class 'k2' is known already" in known.json()["error"]
        assert "--" not in known.json()["error"]  # options are not for a browser
    more = client.post("/api/learn", files=files(2, 2), data={"name": "k2", "update": "true"})
    assert more.status_code == 200
    info = client.get("/api/info").json()
    assert {each["label"]: each["images"] for each in info["classes"]}["k2"] == 14


def test_explain_adds_up_and_shows_where(client, files):
    answer = client.post("/api/explain", files=files(1, field="image"), data={"concepts": "2"})
    assert answer.status_code == 200, answer.text
    why = answer.json()
    assert why["label"] == "k1"
    assert why["runner_up"] in {"k0", "k2", "k3", "k4"}
    total = sum(each["contribution"] for each in why["evidence"]) + why["others"] + why["rest"]
    assert total + why["offset"] == pytest.approx(why["difference"], abs=1e-5)
    assert why["difference"] >= 0
    spoke_for = [each for each in why["evidence"] if each["contribution"] > 0]
    assert 1 <= len(spoke_for) <= 2
    assert all(each["heat"].startswith("data:image/png;base64,") and each["colour"] for each in spoke_for)
    assert why["framed"].startswith("data:image/png;base64,")


def test_undo_takes_back_the_session_that_is_meant(client, files, model_file):
    for kind in (7, 8):
        assert client.post("/api/learn", files=files(kind, 3), data={"name": f"k{kind}"}).status_code == 200
    other = client.post("/api/undo", json={"session": 1})
    assert other.status_code == 409
    assert other.json()["error"] == "Session 1 is not the last one, that is 2; nothing was undone."
    assert client.post("/api/undo", json={"session": 2, "by": "Ada"}).json()["session"]["classes"][0]["label"] == "k8"
    assert client.post("/api/undo").json()["session"]["number"] == 1
    left = client.post("/api/undo")
    assert left.status_code == 422
    assert "Only the base session is left" in left.json()["error"]
    on_disk = Masil.load(model_file, device="cpu")
    assert len(on_disk.sessions_) == 1
    assert [(event.what, event.who) for event in on_disk.log_][-2:] == [("undone", "Ada"), ("undone", "studio")]


@pytest.mark.parametrize("name", ["a/b", "owl 🦉", "50%?#&", "n" * 200, "../up"])
def test_forget_finds_a_class_by_any_name(client, files, name, model_file):
    assert client.post("/api/learn", files=files(7, 2), data={"name": name}).status_code == 200
    from urllib.parse import quote

    gone = client.delete(f"/api/classes/{quote(name, safe='')}", params={"by": "Ada"})
    assert gone.status_code == 200, gone.text
    assert gone.json()["label"] == name
    assert name not in Masil.load(model_file, device="cpu").memory_.labels


def test_forget_says_what_was_probably_meant_and_the_last_class_stays(client):
    answer = client.delete("/api/classes/K3x")
    assert answer.status_code == 404
    assert answer.json()["error"] == "There is no class 'K3x' to forget; did you mean 'k3'?"
    assert [client.delete(f"/api/classes/k{kind}").status_code for kind in range(4)] == [200] * 4
    last = client.delete("/api/classes/k4")
    assert last.status_code == 409
    assert "the only class left" in last.json()["error"]
    assert client.get("/api/info").json()["classes"][0]["nearest"] is None


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("", "The request has no 'name', or an empty one"),
        (" \t ", "is empty or stands for a folder"),
        ("..", "is empty or stands for a folder"),
        ("x" * 300, "The class name has 300 characters; it may have 200."),
        ("a\nb", "characters that cannot be seen"),
        ("gpj\u202eexe", "characters that cannot be seen"),
    ],
)
def test_names_that_cannot_be_one(client, files, name, sentence, model_file):
    before = model_file.read_bytes()
    answer = client.post("/api/learn", files=files(7, 2), data={"name": name})
    assert answer.status_code == 422
    assert sentence in answer.json()["error"]
    assert model_file.read_bytes() == before


def test_info_is_a_model_card(client, files):
    learnt = client.post("/api/learn", files=[*files(7, 3), *files(7, 2)], data={"name": "new"}).json()
    assert learnt["images"] == 3  # a photo that is sent twice counts once
    assert learnt["session"]["classes"] == [{"label": "new", "images": 3}]
    info = client.get("/api/info").json()
    assert (info["name"], info["backbone"], info["concepts"]) == ("kinds.masil", "resnet20", 6)
    assert [each["label"] for each in info["classes"]] == ["k0", "k1", "k2", "k3", "k4", "new"]
    assert info["classes"][-1]["session"] == 1
    assert info["memory_bytes"] > 0
    assert [line["what"] for line in info["log"]] == ["taught", "taught"]
    assert [each["who"] for each in info["sessions"]] == ["Ada", "studio"]
    assert info["limits"]["images"] == Limits().images


def test_health_and_metrics(client, files):
    assert client.get("/api/health").json() == {"status": "ok"}
    client.post("/api/predict", files=files(1))
    client.get("/nowhere/1")
    answer = client.get("/api/metrics")
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    lines = answer.text.splitlines()
    assert 'masil_requests_total{method="POST",route="/api/predict",status="200"} 1.0' in lines
    assert 'masil_requests_total{method="GET",route="other",status="404"} 1.0' in lines
    assert "masil_classes 5.0" in lines
    assert all(line.startswith("# ") or float(line.rsplit(" ", 1)[1]) >= 0 for line in lines)


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/", "text/html; charset=utf-8"),
        ("/static/studio.css", "text/css; charset=utf-8"),
        ("/static/studio.js", "text/javascript; charset=utf-8"),
        ("/static/mark.svg", "image/svg+xml"),
    ],
)
def test_files_of_the_page_have_their_types(client, path, kind):
    assert client.get(path).headers["content-type"] == kind


@pytest.mark.parametrize(
    ("method", "path", "status", "sentence"),
    [
        ("GET", "/api/nothing", 404, "There is nothing at /api/nothing."),
        ("GET", "/api/predict", 405, "/api/predict does not take GET requests."),
        ("POST", "/api/predict", 422, "The request has no 'images', or an empty one; send a form (multi"),
        ("GET", "/static/../app.py", 404, "There is nothing at"),
        ("GET", "/static/..%2fapp.py", 404, "There is nothing at"),
        ("GET", "/static/app.py", 404, "There is nothing at"),
    ],
)
def test_every_error_is_a_sentence(client, method, path, status, sentence):
    answer = client.request(method, path)
    assert answer.status_code == status
    assert answer.json()["error"].startswith(sentence)


def test_what_is_no_json_is_said_to_be_none(client):
    answer = client.post("/api/undo", content="{broken", headers={"content-type": "application/json"})
    assert answer.status_code == 422
    assert answer.json()["error"].startswith("The request is not valid JSON: Expecting property name")


def test_a_number_out_of_range_and_a_folder_that_cannot_be_written_change_nothing(
    client, files, model_file, monkeypatch
):
    answer = client.post("/api/predict", files=files(1), data={"top": "0"})
    assert answer.status_code == 422
    assert answer.json()["error"] == "The request's 'top' does not fit: Input should be greater than or equal to 1."

    def full(*_args, **_kwargs):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("tempfile.mkstemp", full)
    answer = client.post("/api/learn", files=files(7, 3), data={"name": "new"})
    assert answer.status_code == 507
    assert answer.json()["error"].startswith("The disk is full:")
    assert len(client.get("/api/info").json()["classes"]) == 5


def test_classes_named_by_numbers(studio, files, model_file):
    model = Masil.load(model_file, device="cpu")
    (base,) = model.session_rows_
    model.session_rows_ = (replace(base, rows=replace(base.rows, labels=(0, 1, 2, 3, 4))),)
    model.log_ = ()
    model.save(model_file)
    client = studio()
    assert client.post("/api/predict", files=files(3)).json()["predictions"][0]["label"] == "3"
    wrong = client.post("/api/learn", files=files(7, 2), data={"name": "owl"})
    assert "names its classes by whole numbers, so 'owl' cannot be one" in wrong.json()["error"]
    assert client.post("/api/learn", files=files(7, 2), data={"name": "7"}).json()["label"] == "7"
    assert client.delete("/api/classes/2").status_code == 200
