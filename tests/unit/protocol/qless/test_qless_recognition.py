"""Recognition of dialects by their declarations."""

import hashlib

import pytest

import beanpole.qless as q
from beanpole.protocol.qless.calls_unified import CALLS
from beanpole.protocol.qless.recognition import KNOWN, TEXT_MAX_BYTES, recognise
from tests.unit.protocol.qless import scripts


def test_the_forms_with_one_script() -> None:
    assert scripts.UNIFIED_SCRIPT.flavour == q.UNIFIED
    assert scripts.CORE_SCRIPT.flavour == q.CORE
    assert scripts.THROTTLES_SCRIPT.flavour == q.THROTTLES
    assert scripts.DOTTED_SCRIPT.flavour == q.DOTTED


def test_a_script_has_its_sha_and_its_calls() -> None:
    text = scripts.throttles()
    script = scripts.script(text)
    assert script.sha == hashlib.sha1(text, usedforsecurity=False).hexdigest().encode()
    assert script.names == frozenset(CALLS)
    assert b"requeue" not in scripts.UNIFIED_SCRIPT.names


def test_facts_of_a_script() -> None:
    assert scripts.THROTTLES_SCRIPT.peeks_from
    assert not scripts.UNIFIED_SCRIPT.peeks_from
    older = scripts.throttles().replace(b"queue, offset, count", b"queue, count")
    assert not scripts.script(older).peeks_from
    named = b"""assert(queue, 'Complete(): Arg "queue_name" missing')"""
    assert scripts.script(scripts.throttles() + named).names_queue
    assert not scripts.THROTTLES_SCRIPT.names_queue


def test_whether_errors_name_the_job() -> None:
    assert scripts.CORE_SCRIPT.names_jid
    assert not scripts.THROTTLES_SCRIPT.names_jid
    silent = b"\n  error('Complete(): Job does not exist')\n"
    assert not scripts.script(scripts.core() + silent).names_jid
    saying = b"\n  error('Complete(): Job ' .. self.jid .. ' does not exist')\n"
    assert scripts.script(scripts.throttles() + saying).names_jid


@pytest.mark.parametrize("name", scripts.SEED_PLACES)
def test_the_seed_form(name: str) -> None:
    script = scripts.seed_script(name)
    assert script.flavour == q.SEED
    assert script.call == name.lower().encode()


def test_names_of_scripts_of_two_words() -> None:
    text = b"redis.call('zrem', 'ql:workers') error('Deregister_Workers(): Arg \"worker\" missing')"
    assert scripts.script(text).call == b"deregisterworkers"


def test_a_cancel_of_many_jobs() -> None:
    assert scripts.script(scripts.seed("Cancel", "-- Cancel(0, jid, [jid, [...]])")).cancels_many
    assert not scripts.script(scripts.seed("Cancel", "-- Cancel(0, jid)")).cancels_many


def test_other_places_of_arguments_are_not_the_seed_form() -> None:
    assert recognise(scripts.seed("Put").replace(b"ARGV[4]", b"ARGV[6]")) is None
    assert recognise(scripts.seed("Pop").replace(b"KEYS[1]", b"ARGV[4]")) is None


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"return 1",
        b"return redis.call('get', KEYS[1])",
        b"-- function QlessAPI.put(now, queue, jid, klass, data, delay, ...)",
        b"error('Put(): Arg \"jid\" missing')",
        b"error('Foo(): no') redis.call('x')",
        b"error('Put(): no') error('Pop(): no') redis.call('x')",
        b"function QlessAPI.get(now, jid)\nend",
        scripts.throttles().replace(b"me, queue, jid", b"queue, me, jid"),
        scripts.throttles().replace(b"queue, worker, count", b"worker, queue, count"),
        scripts.throttles().replace(b"queue, offset, count", b"queue, count, offset"),
        scripts.unified().replace(b"(now, queue, jid, klass", b"(queue, now, jid, klass"),
        b"\xff\0" * 100,
        scripts.throttles() + b" " * TEXT_MAX_BYTES,
    ],
)
def test_other_scripts_are_unknown(text: bytes) -> None:
    assert recognise(text) is None


def test_the_known_scripts_are_those_of_the_package() -> None:
    assert set(KNOWN.values()) == {name.lower().encode() for name in scripts.SEED_PLACES}
    assert all(len(sha) == 40 for sha in KNOWN)
