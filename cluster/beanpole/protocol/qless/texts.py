"""The error texts of the dialects for the results of calls, in the format of Redis."""

import beanpole.qless as q
from beanpole.protocol.qless.recognition import Script
from beanpole.protocol.qless.requests import Call


def script_error(sha: bytes, message: bytes) -> bytes:
    """Format an error that a script raised as Redis does, without `ERR ` before it."""
    return b"user_script:1: %b script: %b, on @user_script:1." % (message, sha)


def redis_error(sha: bytes, message: bytes) -> bytes:
    """Format an error that a command raised in a script as Redis does, without `ERR `."""
    return b"%b script: %b, on @user_script:1." % (message, sha)


# The names of calls in texts, where "()" follows.
_NAMES: dict[int, bytes] = {
    q.PUT: b"Put",
    q.POP: b"Pop",
    q.PEEK: b"Peek",
    q.COMPLETE: b"Complete",
    q.FAIL: b"Fail",
    q.RETRY: b"Retry",
    q.HEARTBEAT: b"Heartbeat",
    q.TIMEOUT: b"Timeout",
    q.CANCEL: b"Cancel",
    q.DEPENDS_ON: b"Depends",
    q.DEPENDS_OFF: b"Depends",
    q.PRIORITY: b"Priority",
    q.TRACK: b"Track",
    q.UNTRACK: b"Track",
    q.TAG_ADD: b"Tag",
    q.TAG_REMOVE: b"Tag",
    q.LOG: b"Log",
    q.UNFAIL: b"Unfail",
    q.RECUR: b"Recur",
    q.RECUR_UPDATE: b"Recur",
    q.RECUR_TAG: b"Tag",
    q.RECUR_UNTAG: b"Untag",
}

# The texts before the state of a job, or before the worker or queue that holds it.
_NOT_RUNNING = {
    q.COMPLETE: b"is not currently running: ",
    q.FAIL: b"not currently running: ",
    q.RETRY: b"is not currently running: ",
    q.HEARTBEAT: b"not currently running: ",
}
_OTHER_WORKER = {
    q.COMPLETE: b"has been handed out to another worker: ",
    q.FAIL: b"running with another worker: ",
    q.RETRY: b"has been given to another worker: ",
    q.HEARTBEAT: b"given out to another worker: ",
}
# The texts of these calls name the job in all dialects.
_NAMING = (q.PUT, q.PRIORITY, q.TAG_ADD, q.TAG_REMOVE, q.LOG, q.RECUR_TAG, q.RECUR_UNTAG)


def text_of(script: Script, call: Call, code: int, details: tuple[object, ...]) -> bytes:
    """Return the text of an error that is the result of a call, in the words of the script."""
    name = _NAMES.get(call.code, b"Qless") + b"(): "
    first = details[0] if details else b""
    jid = first if isinstance(first, bytes) else b""
    second = details[1] if len(details) > 1 else b""
    if code == q.TOO_MUCH:
        limit = first if isinstance(first, bytes) else str(first).encode()
        return name + b"too much: %b, the limit is %b" % (limit, str(second).encode())
    if code == q.NO_ROOM:
        return name + b"the cluster has no memory or disk left for more"
    if code == q.QUOTA:
        return name + b"the quota of the user is used up"
    if code == q.DENIED:
        return name + b"permission denied"
    if code == q.BAD_CALL:
        return name + b"bad arguments"
    if code == q.DEPENDS_ON_ITSELF:
        return name + jid + b" depends on itself"
    if code == q.NO_RECURRING and call.code == q.RECUR_UPDATE:
        return b"Recur(): No recurring job " + jid
    if code == q.NO_RECURRING:
        return name + b"Job " + jid + b" does not exist"
    if code == q.HAS_DEPENDENT:
        other = second if isinstance(second, bytes) else b""
        if script.flavour == q.SEED:
            return name + jid + b" has un-canceled jobs that depend on it"
        return b"%b%b is a dependency of %b but is not mentioned to be canceled" % (
            name,
            jid,
            other,
        )
    if code == q.NOT_DEPENDING:
        return b"%bJob %b not in the depends state: %b" % (name, jid, _state(second))
    if code == q.NO_JOB and call.code == q.PRIORITY and not script.names_jid:
        return b"Queue(): no queue name provided"  # the scripts fail with this error
    if code == q.NO_JOB and call.code == q.PUT:
        name = b"Requeue(): "
    return name + _not_held(script, call, code, jid, second)


def _state(state: object) -> bytes:
    """Return the name of a state; `false` for a job that does not exist, as in Lua."""
    return q.STATE_NAMES.get(state, b"false") if isinstance(state, int) else b"false"


def _not_held(script: Script, call: Call, code: int, jid: bytes, second: object) -> bytes:
    """Return the reason why a client does not hold the job that it names."""
    names_jid = (script.names_jid and call.code != q.TRACK) or call.code in _NAMING
    job = b"Job " + jid + b" " if names_jid else b"Job "
    other = second if isinstance(second, bytes) else b""
    if code == q.NO_JOB:
        return _no_job(script, call, job, jid)
    if code == q.NOT_RUNNING:
        if call.code == q.TIMEOUT:
            return b"Job " + jid + b" not running"
        if call.code == q.FAIL and script.names_jid:
            job = job[:-1]  # their text lacks the space
        return job + _NOT_RUNNING.get(call.code, b"not currently running: ") + _state(second)
    if code == q.OTHER_WORKER:
        return job + _OTHER_WORKER.get(call.code, b"running with another worker: ") + other
    if code == q.OTHER_QUEUE:
        return job + b"running in another queue: " + other
    return b"error %d" % code


def _no_job(script: Script, call: Call, job: bytes, jid: bytes) -> bytes:
    if call.code == q.TIMEOUT and not script.names_jid:
        return b"Job " + jid + b" not running"
    if call.code == q.FAIL and script.names_jid:
        job = job[:-1]  # their text lacks the space
    return job + b"does not exist"
