"""Operations that happen only once, over the claims API of `onlyonce serve`. One file, no dependencies: copy it.

    claims = Claims("http://127.0.0.1:9191", token=os.environ["ONLYONCE_TOKEN"])

    @claims.idempotent(key=lambda order: f"charge-{order['id']}", payload=lambda order: order)
    def charge(order):
        ...                       # runs once; every later call with the same order gets what it returned

`request` is the caller's side of the `Idempotency-Key` header: it sends again, with the same key, until there is an
answer that will not change.

What an exception means. One that leaves the work says nothing about its effect, so the operation becomes *unknown* and
what happens next is the `unknown` policy's business. Raise `NotExecuted` when nothing happened: the key is free again.
"""

from __future__ import annotations

import base64
import contextvars
import email.utils
import functools
import hashlib
import http.client
import json
import logging
import random
import secrets
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from dataclasses import dataclass, field
from typing import Any, Callable, Mapping, Optional, TypeVar, Union

__all__ = [
    "AnswerNotKept", "Claims", "Conflict", "Execution", "Fenced", "InFlight", "KeyReused", "NotExecuted",
    "OutcomeUnknown", "Problem", "Response", "StepUnknown", "Unreachable", "current", "derive_key", "request",
]

log = logging.getLogger("onlyonce")
T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])
Json = Any

ANSWER_BYTES_MAX = 64 * 1024 * 1024
BACKOFF_FIRST, BACKOFF_LONGEST = 0.2, 20.0


# Errors.


class Conflict(Exception):
    """The work was not run for this call."""


class InFlight(Conflict):
    """Someone else runs it. `left` seconds of their lease are left."""

    def __init__(self, left: float) -> None:
        super().__init__("the operation is running")
        self.left = left


class OutcomeUnknown(Conflict):
    """Nobody knows whether it happened. `record` and `fence` are what it is resolved with."""

    def __init__(self, record: str, fence: int) -> None:
        super().__init__(f"it is unknown whether the operation happened (record {record[2:10]}, fence {fence})")
        self.record, self.fence = record, fence


class KeyReused(Conflict):
    """The key was used for another request."""


class Fenced(Conflict):
    """The grant was lost while the work ran: another attempt holds the truth."""


class AnswerNotKept(Conflict):
    """It was done before, but its answer was not kept."""


class StepUnknown(Exception):
    """An earlier attempt began the step and did not finish it: nobody knows whether its effect happened."""


class NotExecuted(Exception):
    """Raise this from the work: nothing happened, and the same request may be tried again.

    With `corrected=True` the request itself was refused: another one may use the key.
    """

    def __init__(self, message: str = "nothing happened", *, corrected: bool = False) -> None:
        super().__init__(message)
        self.corrected = corrected


class Unreachable(Exception):
    """There was no answer in time. What was asked may have been done; asking again is safe."""


class Problem(Exception):
    """The service refused: `status`, and the problem document's members in `document`."""

    def __init__(self, status: int, document: Mapping[str, Json]) -> None:
        super().__init__(f"{status} {document.get('title', '')}: {document.get('detail', '')}")
        self.status, self.document = status, document


# Requests that are sent again.


@dataclass(frozen=True)
class Response:
    """An answer."""

    status: int
    headers: Mapping[str, str]
    body: bytes = field(repr=False)

    def json(self) -> Json:
        return json.loads(self.body)


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        return None


_opener = urllib.request.build_opener(_NoRedirect)


def _send(method: str, url: str, body: Optional[bytes], headers: Mapping[str, str], timeout: float) -> Response:
    """One attempt. Any status is an answer; no answer is `Unreachable`."""
    asked = urllib.request.Request(url, data=body, headers=dict(headers), method=method)
    try:
        try:
            answer = _opener.open(asked, timeout=timeout)
        except urllib.error.HTTPError as error:
            answer = error
        with answer:
            data = answer.read(ANSWER_BYTES_MAX + 1)
            if len(data) > ANSWER_BYTES_MAX:
                raise Unreachable("the answer is longer than 64 MiB")
            return Response(answer.status, {name.lower(): value for name, value in answer.headers.items()}, data)
    except (OSError, http.client.HTTPException) as error:
        raise Unreachable(str(error)) from error


def _is_final(answer: Response) -> bool:
    """Whether asking again would get the same."""
    for mark in ("idempotency-replayed", "idempotent-replayed"):
        if answer.headers.get(mark) == "true":
            return True
    if answer.status == 409:
        try:
            kind = answer.json().get("type", "")
        except (ValueError, AttributeError):
            kind = ""
        return isinstance(kind, str) and kind.endswith("outcome-unknown")
    return answer.status not in (408, 425, 429) and (answer.status < 500 or answer.status in (501, 505))


def _retry_after(headers: Mapping[str, str]) -> float:
    text = headers.get("retry-after", "").strip()
    if text.isdigit():
        return float(text)
    try:
        return max(0.0, email.utils.parsedate_to_datetime(text).timestamp() - time.time())
    except (TypeError, ValueError):
        return 0.0


def _until_final(
    send: Callable[[float], Response],
    is_final: Callable[[Response], bool],
    within: float,
    attempts_max: int,
    attempt_within: float,
) -> Response:
    """Sends until an answer is final, with exponential backoff and full jitter. Then the last answer, or no answer."""
    deadline = time.monotonic() + within
    for number in range(attempts_max):
        left = deadline - time.monotonic()
        wait = random.uniform(0, min(BACKOFF_LONGEST, BACKOFF_FIRST * 2 ** min(number, 30)))
        last: Union[Response, Unreachable]
        try:
            last = send(max(0.001, min(left, attempt_within)))
            if is_final(last):
                return last
            wait += _retry_after(last.headers)
        except Unreachable as error:
            last = error
        if number + 1 == attempts_max or time.monotonic() + wait >= deadline:
            break
        time.sleep(wait)
    if isinstance(last, Unreachable):
        raise last
    return last


def request(
    method: str,
    url: str,
    body: Optional[bytes] = None,
    headers: Optional[Mapping[str, str]] = None,
    *,
    key: Optional[str] = None,
    within: float = 120.0,
    attempts_max: int = 10,
    attempt_within: float = 30.0,
) -> Response:
    """Sends a request with one `Idempotency-Key`, again and again, until there is an answer that will not change.

    `key` must be the same when the *operation* is tried again, also after a crash: derive it from what the operation is
    (`derive_key`), or write it down before calling. Without one a random key is made, which protects this call only.
    Stops at 422 and other refusals, and at any answer from the record, errors too. 409 waits while the first one runs.
    """
    sent = {"Idempotency-Key": key or secrets.token_hex(16), **(headers or {})}
    return _until_final(
        lambda timeout: _send(method, url, body, sent, timeout), _is_final, within, attempts_max, attempt_within
    )


def derive_key(entity: str, action: str, params: Optional[Mapping[str, Json]] = None) -> str:
    """The key of an operation, from what it is: the same one as `onlyonce key derive` and the Rust library make."""
    text = f"{entity}:{action}:{json.dumps(params, sort_keys=True)}" if params else f"{entity}:{action}"
    return hashlib.sha256(text.encode()).hexdigest()[:32]


# The claims API.


class Execution:
    """The grant, in the hands of the work."""

    def __init__(self, claims: Claims, record: str, owner: str, answer: Mapping[str, Json], lease: float) -> None:
        self.record, self.fence, self.attempt = record, int(answer["fence"]), int(answer["attempt"])
        #: Set when the grant is lost: the work must stop.
        self.lost = threading.Event()
        self._claims, self._owner, self._lease = claims, owner, lease
        self._steps = {step["name"]: step["value"] for step in answer.get("steps", [])}
        self._ended = threading.Event()
        self._good_until = 0.0

    def step(self, name: str, work: Callable[[], T], *, repeatable: bool = False) -> T:
        """A part of the work that happens once: later attempts get its result without running it.

        One that an earlier attempt began and did not finish raises `StepUnknown`, unless it is `repeatable`.
        """
        if name in self._steps:
            return _value_of(self._steps[name])  # type: ignore[no-any-return]
        number = 1
        while f"~begun {number} {name}" in self._steps and f"~undone {number} {name}" in self._steps:
            number += 1
        if f"~begun {number} {name}" not in self._steps:
            # On record before the work starts, so that a step that was cut short can be told from one never begun.
            self._record_step(f"~begun {number} {name}", {"json": self.fence})
        elif not repeatable:
            raise StepUnknown(name)
        try:
            result = work()
        except NotExecuted as error:
            self._record_step(f"~undone {number} {name}", {"json": self.fence})
            # A refusal would forget the request, and with it the steps that did happen.
            error.corrected = error.corrected and not self._any_finished()
            raise
        return _value_of(self._record_step(name, _outcome_of(result)))  # type: ignore[no-any-return]

    def memo(self, name: str, make: Callable[[], T]) -> T:
        """A value that differs each time it is made (a time, a random number): made once, then always the same."""
        if name not in self._steps:
            self._record_step(name, _outcome_of(make()))
        return _value_of(self._steps[name])  # type: ignore[no-any-return]

    def _any_finished(self) -> bool:
        return any(name.startswith("~begun ") and name.split(" ", 2)[2] in self._steps for name in self._steps)

    def _record_step(self, name: str, value: Json) -> Json:
        path = f"/v1/claims/{self.record}/steps/{urllib.parse.quote(name, safe='')}"
        answer = self._command(path, {"value": value})
        if answer["answer"] not in ("recorded", "already"):
            self.lost.set()
            raise Fenced(f"the step could not be recorded: {answer['answer']}")
        self._steps[name] = answer.get("value", value)
        return self._steps[name]

    def _command(self, path: str, more: Mapping[str, Json]) -> Mapping[str, Json]:
        return self._claims.post(path, {"owner": self._owner, "fence": self.fence, **more})

    def _end(self, how: str, more: Mapping[str, Json]) -> str:
        return str(self._command(f"/v1/claims/{self.record}/{how}", more)["answer"])

    def _keep(self) -> None:
        """Renews the lease until the work has ended. On a thread of its own: the work may block."""
        while not self._ended.wait(self._lease / 3):
            if not self._renew(self._lease / 3):
                self.lost.set()
                return

    def _renew(self, within: float) -> bool:
        """Whether the grant is still held, as far as anyone can tell."""
        asked_at = time.monotonic()
        asked = {"owner": self._owner, "fence": self.fence, "lease": f"{int(self._lease * 1000)}ms"}
        try:
            answer = self._claims.post(f"/v1/claims/{self.record}/renew", asked, within=within)
        except (Unreachable, Problem):
            answer = {"answer": "none"}
        if answer["answer"] == "renewed":
            # Counted from before it was sent: the service counts from when it arrives.
            self._good_until = asked_at + answer["left_ms"] / 1000
        return answer["answer"] != "fenced" and time.monotonic() < self._good_until


_current: contextvars.ContextVar[Execution] = contextvars.ContextVar("onlyonce.execution")


def current() -> Execution:
    """The execution that the calling work runs under."""
    return _current.get()


class Claims:
    """A client of `onlyonce serve`. Safe to share between threads."""

    def __init__(self, url: str, *, token: Optional[str] = None, within: float = 30.0) -> None:
        self._url, self._within = url.rstrip("/"), within
        self._headers = {"Content-Type": "application/json", "Accept": "application/json"}
        if token is not None:
            self._headers["Authorization"] = f"Bearer {token}"

    def post(self, path: str, asked: Mapping[str, Json], *, within: Optional[float] = None) -> Mapping[str, Json]:
        """A command. It is sent again while there is no answer: every command may be repeated as it is."""
        body = json.dumps(asked, allow_nan=False).encode()
        within = self._within if within is None else within
        answer = _until_final(
            lambda timeout: _send("POST", self._url + path, body, self._headers, timeout),
            lambda answer: answer.status not in (429, 502, 503, 504),
            within, 1000, within,
        )
        try:
            document = answer.json()
        except ValueError:
            document = {}
        if answer.status != 200 or not isinstance(document, dict):
            raise Problem(answer.status, document if isinstance(document, dict) else {})
        return document

    def run(
        self,
        key: str,
        work: Callable[[Execution], T],
        *,
        principal: Optional[str] = None,
        payload: Json = None,
        lease: float = 30.0,
        wait: float = 0.0,
        **terms: Json,
    ) -> T:
        """Runs `work` once for `key`, and gives what it returned now and on every later call.

        `payload` is what is asked: the same key with another one raises `KeyReused`. While someone else runs it, waits
        for up to `wait` seconds (at most 60). `terms` go to the service as they are: `retention`, `unknown`, `run_max`,
        `attempts_max`, `hold_for`, `unknown_retention`, `path`.
        """
        # Made before the claim is sent, so that a lost reply is asked for again and nothing is granted to nobody.
        owner = secrets.token_hex(16)
        asked: dict[str, Json] = {"key": key, "owner": owner, "lease": f"{int(lease * 1000)}ms", **terms}
        if principal is not None:
            asked["principal"] = principal
        if payload is not None:
            asked["payload"] = payload
        if wait > 0:
            asked["wait"] = f"{int(wait * 1000)}ms"
        claimed_at = time.monotonic()
        answer = self.post("/v1/claims", asked, within=self._within + wait)
        if answer["answer"] != "granted":
            return _replayed(answer)  # type: ignore[no-any-return]
        execution = Execution(self, answer["id"], owner, answer, lease)
        execution._good_until = claimed_at + lease
        if time.monotonic() >= claimed_at + lease / 2 and not execution._renew(self._within):
            raise Fenced("the grant was heard of too late, and nothing was started")
        return self._execute(execution, work)

    def _execute(self, execution: Execution, work: Callable[[Execution], T]) -> T:
        heartbeat = threading.Thread(target=execution._keep, name="onlyonce heartbeat", daemon=True)
        heartbeat.start()
        token = _current.set(execution)
        try:
            return self._complete(execution, work(execution))
        except NotExecuted as error:
            self._told(execution, "release", {"keep_fingerprint": not error.corrected})
            raise
        except (AnswerNotKept, Fenced):
            raise
        except BaseException:
            # It may have happened: nobody is told otherwise.
            self._told(execution, "abandon", {})
            raise
        finally:
            _current.reset(token)
            execution._ended.set()

    def _complete(self, execution: Execution, result: T) -> T:
        try:
            outcome = _outcome_of(result)
        except (TypeError, ValueError) as error:
            # It is done and must not run again, although what it returned cannot be kept.
            self._told(execution, "complete", {"outcome": {"tombstone": "discarded"}})
            raise AnswerNotKept(f"what the work returned cannot be written as JSON: {error}") from error
        answer = self._told(execution, "complete", {"outcome": outcome})
        if answer in ("fenced", "alarm"):
            raise Fenced(f"another attempt has taken over ({answer})")
        # The first caller gets what later ones will get.
        return _value_of(outcome)  # type: ignore[no-any-return]

    def _told(self, execution: Execution, how: str, more: Mapping[str, Json]) -> Optional[str]:
        """Ends the grant. A service that is away for too long leaves it to the lease: the record becomes unknown."""
        try:
            return execution._end(how, more)
        except (Unreachable, Problem) as error:
            log.error("the end of an operation is not on record (%s, record %s): %s", how, execution.record[2:10], error)
            return None

    def idempotent(
        self,
        *,
        key: Union[str, Callable[..., str]],
        payload: Optional[Callable[..., Json]] = None,
        **terms: Json,
    ) -> Callable[[F], F]:
        """Makes a function happen once per key. `key` and `payload` are computed from the call's arguments.

        `terms` as in `run`. Inside, `current()` is the execution: its steps, its fence, whether it is lost.
        """

        def decorate(function: F) -> F:
            @functools.wraps(function)
            def once(*args: Any, **kwargs: Any) -> Any:
                name = key if isinstance(key, str) else key(*args, **kwargs)
                asked = None if payload is None else payload(*args, **kwargs)
                return self.run(name, lambda _: function(*args, **kwargs), payload=asked, **terms)

            return once  # type: ignore[return-value]

        return decorate


def _replayed(answer: Mapping[str, Json]) -> Json:
    kind = answer["answer"]
    if kind == "replay":
        return _value_of(answer["outcome"])
    if kind == "busy":
        raise InFlight(answer["left_ms"] / 1000)
    if kind in ("held", "recover"):
        raise OutcomeUnknown(answer["id"], int(answer["fence"]))
    if kind == "mismatch":
        raise KeyReused("the key was used for another request")
    raise Fenced("another attempt has taken over")


def _outcome_of(value: Json) -> Mapping[str, Json]:
    if isinstance(value, (bytes, bytearray)):
        return {"content_type": "application/octet-stream", "base64": base64.b64encode(value).decode()}
    # What cannot be read back as it was is not recorded as if it could.
    return {"json": json.loads(json.dumps(value, allow_nan=False))}


def _value_of(outcome: Optional[Mapping[str, Json]]) -> Json:
    if outcome is None:
        raise AnswerNotKept("the value was erased")
    if "json" in outcome:
        return outcome["json"]
    if "base64" in outcome and "content_version" not in outcome:
        return base64.b64decode(outcome["base64"])
    raise AnswerNotKept(f"the answer was not kept: {outcome.get('tombstone', 'it was written by another door')}")
