"""The error tree: one class per code, over the wire and back."""

import copy
import json
import pickle

import pytest

from shared import errors
from shared.errors import BY_CODE, InvalidRequest, NotReady, SQLEnvError, from_wire, is_retryable


def test_every_class_has_a_code_of_its_own():
    classes = (kind for kind in vars(errors).values() if isinstance(kind, type))
    kinds = {kind for kind in classes if issubclass(kind, SQLEnvError)}
    assert set(BY_CODE.values()) == kinds
    assert len(BY_CODE) == len(kinds)


@pytest.mark.parametrize("code", list(BY_CODE))
def test_each_error_crosses_the_wire(code):
    sent = BY_CODE[code]("what, and what to do", retry_after_s=3, tables=["a", "b"])
    body = json.loads(json.dumps(sent.to_wire()))
    assert set(body) == {"error"}
    assert set(body["error"]) >= {"code", "message", "retryable"}
    got = from_wire(body, sent.status)
    assert type(got) is type(sent)
    assert (got.message, str(got), got.details) == (sent.message, sent.message, sent.details)
    assert is_retryable(got) == is_retryable(sent) == sent.retryable


@pytest.mark.parametrize(
    "copier", [copy.copy, copy.deepcopy, lambda error: pickle.loads(pickle.dumps(error))]
)
def test_errors_can_be_copied_and_sent_between_processes(copier):
    error = NotReady("starting", retry_after_s=1)
    twin = copier(error)  # type: ignore[operator]
    assert (type(twin), str(twin), twin.details) == (NotReady, "starting", {"retry_after_s": 1})


def test_any_detail_a_server_may_send_is_kept():
    fields = {"code": "invalid_request", "message": "m", "retryable": False}
    details = {"self": 1, "kind": 2, "status": 3}
    error = from_wire({"error": fields | details})
    assert isinstance(error, InvalidRequest)
    assert error.details == details


def test_an_unknown_code_is_a_plain_error_with_the_senders_fields():
    body = {"error": {"code": "teapot", "message": "short and stout", "retryable": True}}
    error = from_wire(body, 418)
    assert type(error) is SQLEnvError
    assert str(error) == "short and stout"
    assert is_retryable(error)
    assert error.to_wire()["error"]["code"] == "teapot"
    assert not is_retryable(from_wire({"error": {"code": "teapot", "message": ""}}, 418))


@pytest.mark.parametrize(
    "body", [None, "text", [], {}, {"detail": "Not Found"}, {"error": "text"}, {"error": None}, 3]
)
@pytest.mark.parametrize(
    ("status", "retryable"), [(404, False), (500, False), (429, True), (502, True), (503, True)]
)
def test_a_foreign_reply_is_an_error_that_names_its_source(body, status, retryable):
    error = from_wire(body, status, "http://proxy:1")
    assert type(error) is SQLEnvError
    assert "http://proxy:1" in str(error)
    assert str(status) in str(error)
    assert is_retryable(error) is retryable
