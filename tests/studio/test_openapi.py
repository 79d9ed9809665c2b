"""Schemathesis makes requests up from the OpenAPI document: whatever comes, the answer is one that it promises."""

import warnings

import pytest
from hypothesis import HealthCheck, Phase, given, settings

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # its own, on import
    schemathesis = pytest.importorskip("schemathesis", reason="schemathesis is not installed")
    from schemathesis.specs.openapi import checks

from masil.studio import AccessPolicy, Limits, create_app

CHECKS = [
    schemathesis.checks.not_a_server_error,
    checks.status_code_conformance,
    checks.content_type_conformance,
    checks.response_schema_conformance,
]
ROUTES = {
    "POST /api/predict", "POST /api/explain", "POST /api/learn", "POST /api/undo", "DELETE /api/classes/{name}",
    "GET /api/info", "GET /api/metrics", "GET /api/health",
}  # fmt: skip


@pytest.fixture
def document(model_file):
    app = create_app(
        model_file, device="cpu", access=AccessPolicy(names=frozenset({"testserver"})), limits=Limits(seconds=20)
    )
    return schemathesis.openapi.from_asgi("/api/openapi.json", app)


def play(operation, mode):
    """Send an operation what it asks for, or what it does not."""

    @settings(
        max_examples=8, deadline=None, derandomize=True, database=None, phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(case=operation.as_strategy(generation_mode=schemathesis.GenerationMode[mode]))
    def send(case):
        answer = case.call()
        case.validate_response(answer, checks=CHECKS)
        if answer.status_code >= 400:
            assert answer.json()["error"].endswith((".", "?"))

    send()


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning", "ignore::ResourceWarning")
@pytest.mark.parametrize("mode", ["POSITIVE", "NEGATIVE"])
def test_every_answer_is_one_that_the_document_promises(document, mode):
    operations = {f"{each.ok().method.upper()} {each.ok().path}": each.ok() for each in document.get_all_operations()}
    assert set(operations) == ROUTES
    for name, operation in operations.items():
        if mode == "POSITIVE" or not name.startswith("GET"):  # what takes nothing cannot be sent anything wrong
            play(operation, mode)


def test_the_document_says_what_can_go_wrong(document):
    for found in document.get_all_operations():
        assert {"401", "403", "413", "422", "503"} <= set(found.ok().definition.raw["responses"])
