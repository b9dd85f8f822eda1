"""The model of `tests.unit.core.model`, extended with equally naive policies."""

from fractions import Fraction
from typing import Any

from beanpole import commands as c
from beanpole.core.jobs.policies import DROP_OLDEST, Policy
from beanpole.core.jobs.prefixes import ANY
from tests.unit.core.model import Model, ModelJob, ModelSession

NO_POLICY = Policy()


class PoliciesModel(Model):
    def __init__(self) -> None:
        super().__init__()
        self.policies: dict[bytes, Policy] = {}
        self.doomed: dict[int, int] = {}  # when buried and delayed jobs expire
        self.made: list[tuple[bytes, bytes, int, int, int]] = []  # tube, body, window, when, job
        # (rate, period, number of missing tokens, the time of that number)
        self.missing: dict[bytes, tuple[int, int, Fraction, int]] = {}

    def policy(self, tube: bytes) -> Policy:
        return self.policies.get(tube) or self.policies.get(ANY) or NO_POLICY

    # --- commands ---------------------------------------------------------------------------------

    def do_to_session(self, session: ModelSession, operation: int, *arguments: Any) -> Any:
        if operation == c.SET_POLICY:
            self.policies[arguments[0]] = Policy(*arguments[1:])
        elif operation == c.DROP_POLICY:
            if self.policies.pop(arguments[0], None) is None:
                return c.NOT_FOUND
        else:
            return super().do_to_session(session, operation, *arguments)
        for tube, (rate, period_us, _, _) in list(self.missing.items()):
            policy = self.policy(tube)
            if (policy.rate, policy.rate_period_us) != (rate, period_us):
                del self.missing[tube]
        return c.OK

    def do_to_queue(self, session: ModelSession, operation: int, *arguments: Any) -> Any:
        if operation == c.PUT:
            return self.put_ruled(*arguments)
        if operation != c.PUT_KEYED:
            return super().do_to_queue(session, operation, *arguments)
        *values, key = arguments
        if key in self.keys:
            return self.keys[key], 1
        result = self.put_ruled(*values)
        if result == c.FULL:
            return result
        job, known = result if isinstance(result, tuple) else (result, 0)
        self.keys[key] = job
        return job, known

    def put_ruled(
        self, name: bytes, priority: int, delay_s: int, ttr_s: int, body: bytes
    ) -> tuple[int, int] | int:
        policy = self.policy(name)
        for tube, known, window_us, put_us, job in self.made:
            same = (tube, known, window_us) == (name, body, policy.unique_window_us)
            if same and self.now_us - put_us < window_us:
                return job, 1
        if 0 < policy.bytes_max < len(body):
            return c.FULL
        while self.is_full(name, policy, len(body)):
            if policy.when_full != DROP_OLDEST:
                return c.FULL
            ready = self.jobs_in("ready", name)
            if not ready:
                break
            self.jobs.remove(min(ready, key=lambda job: job.id))
        if ttr_s < 0:
            ttr_s = policy.ttr_s or -ttr_s
        if priority < 0:
            priority = policy.priority
        job_id = self.put(name, priority, delay_s, ttr_s, body)
        self.retain(self.jobs[-1])
        if policy.unique_window_us:
            self.made.append((name, body, policy.unique_window_us, self.now_us, job_id))
        return job_id

    def is_full(self, name: bytes, policy: Policy, size: int) -> bool:
        bodies = [len(job.body) for job in self.jobs if job.tube == name]
        return 0 < policy.jobs_max <= len(bodies) or 0 < policy.bytes_max < sum(bodies) + size

    def do_to_held(self, job: ModelJob, operation: int, *arguments: int) -> int:
        result = super().do_to_held(job, operation, *arguments)
        self.retain(job)
        return result

    # --- time -------------------------------------------------------------------------------------

    def retain(self, job: ModelJob) -> None:
        """Update the retention timer of a job after a change of its state."""
        policy = self.policy(job.tube)
        self.doomed.pop(job.id, None)
        if job.state == "buried" and policy.retain_buried_us:
            self.doomed[job.id] = self.now_us + policy.retain_buried_us
        if job.state == "delayed" and policy.retain_delayed_us:
            end_us = self.now_us + policy.retain_delayed_us
            if end_us < job.due_us:
                self.doomed[job.id] = job.due_us = end_us

    def begin_entry(self, now_us: int) -> None:
        for job in list(self.jobs):
            end_us = self.doomed.get(job.id)
            if job.state not in ("buried", "delayed") or end_us is None:
                continue
            if end_us <= max(now_us, self.now_us):
                self.jobs.remove(job)
        super().begin_entry(now_us)

    def take(self, session: ModelSession) -> ModelJob | None:
        closed = {tube for tube in session.watched if self.has_spent(tube)}
        watched = session.watched
        session.watched = [tube for tube in watched if tube not in closed]
        job = super().take(session)
        session.watched = watched
        if job is not None:
            policy = self.policy(job.tube)
            if policy.rate:
                missing = self.tokens_missing(job.tube) + 1
                rate = policy.rate, policy.rate_period_us
                self.missing[job.tube] = (*rate, missing, self.now_us)
        return job

    def tokens_missing(self, tube: bytes) -> Fraction:
        if tube not in self.missing:
            return Fraction(0)
        rate, period_us, missing, at_us = self.missing[tube]
        return max(Fraction(0), missing - Fraction(rate * (self.now_us - at_us), period_us))

    def has_spent(self, tube: bytes) -> bool:
        policy = self.policy(tube)
        return policy.rate > 0 and self.tokens_missing(tube) > policy.rate - 1
