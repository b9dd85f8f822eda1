"""Arguments of huge requests, which anybody may send, cost the audit log little."""

import pytest

from beanpole.pb import jobs_pb2, users_pb2
from beanpoled.rpc import auditing
from beanpoled.rpc.auditing import AUDITED, ENUMS_LOOKED_MAX, arguments

STATES = [jobs_pb2.JOB_STATE_READY] * (ENUMS_LOOKED_MAX - 1)


def test_only_the_first_values_of_an_enum_are_looked_at() -> None:
    late = [jobs_pb2.JOB_STATE_DELAYED, jobs_pb2.JOB_STATE_BURIED]
    request = jobs_pb2.ListJobsRequest(filter=jobs_pb2.JobFilter(states=[*STATES, *late]))
    shown = arguments(request, AUDITED["JobAdmin/ListJobs"])
    assert shown["filter.states"] == ["JOB_STATE_READY", "JOB_STATE_DELAYED"]


def test_a_large_message_is_not_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(auditing, "_copy")
    right = users_pb2.Rights(pattern="a", rights=[users_pb2.RIGHT_PUT] * 20_000)
    request = users_pb2.SetUserRequest(name="lee", rights=[right])
    assert arguments(request, AUDITED["Users/Set"])["rights"] == ["20007 bytes"]
