"""What the tests in crates/cli/tests/clients run: a scenario by name, whose observations are printed as JSON."""

import json
import sys
import threading
from typing import Any, Callable

import onlyonce
from onlyonce import Claims


def outcome(call: Callable[[], Any]) -> Any:
    """What a call gives, or the name of what it raises."""
    try:
        return call()
    except onlyonce.Conflict as error:
        return type(error).__name__
    except onlyonce.StepUnknown:
        return "StepUnknown"
    except RuntimeError as error:
        return str(error)


def basics(url: str, salt: str) -> dict[str, Any]:
    claims, effects = Claims(url), []

    @claims.idempotent(key=lambda order, amount: f"{salt}-{order}", payload=lambda order, amount: {"amount": amount})
    def charge(order: str, amount: int) -> dict[str, Any]:
        effects.append(order)
        assert onlyonce.current().attempt == 1
        return {"charge": len(effects), "of": order}

    saw: dict[str, Any] = {"first": charge("order-7", 100), "again": charge("order-7", 100)}
    saw["effects"] = len(effects)
    saw["other_payload"] = outcome(lambda: charge("order-7", 200))
    picture = claims.idempotent(key=f"{salt}-picture")(lambda: b"\x00\xff\x10")
    saw["bytes"], saw["bytes_again"] = picture().hex(), picture().hex()

    def fail(_: onlyonce.Execution) -> None:
        raise RuntimeError("the bank is down")

    saw["failed"] = outcome(lambda: claims.run(f"{salt}-fails", fail))
    saw["after_failure"] = outcome(lambda: claims.run(f"{salt}-fails", fail))
    runs = 0

    def refuse(_: onlyonce.Execution) -> None:
        nonlocal runs
        runs += 1
        raise onlyonce.NotExecuted()

    for _ in range(2):
        try:
            claims.run(f"{salt}-refused", refuse)
        except onlyonce.NotExecuted:
            pass
    saw["not_executed_runs"] = runs
    saw["not_json"] = outcome(lambda: claims.run(f"{salt}-odd", lambda _: object()))
    saw["after_not_json"] = outcome(lambda: claims.run(f"{salt}-odd", lambda _: object()))
    try:
        claims.post("/v1/nowhere", {})
    except onlyonce.Problem as problem:
        saw["no_such_path"] = problem.status
    return saw


def while_running(url: str, salt: str) -> dict[str, Any]:
    claims, effects, begun, finish = Claims(url), [], threading.Event(), threading.Event()
    saw: dict[str, Any] = {}
    record = ""

    def work(execution: onlyonce.Execution) -> str:
        nonlocal record
        effects.append(1)
        record = execution.record
        begun.set()
        finish.wait()
        return "done"

    def call(**more: Any) -> Any:
        return outcome(lambda: claims.run(f"{salt}-slow", work, lease=9.0, **more))

    first = threading.Thread(target=lambda: saw.update(first=call()))
    first.start()
    begun.wait()
    saw["told"] = call()
    lease = leased_until(url, record)
    while leased_until(url, record) == lease:
        finish.wait(0.1)
    saw["renewed"] = leased_until(url, record) > lease
    waiting = threading.Thread(target=lambda: saw.update(waited=call(wait=60.0)))
    waiting.start()
    finish.set()
    first.join()
    waiting.join()
    saw["effects"] = len(effects)
    return saw


def leased_until(url: str, record: str) -> int:
    return int(onlyonce.request("GET", f"{url}/v1/claims/{record}").json()["lease_until_ms"])


def steps(url: str, effects: str, point: str) -> dict[str, Any]:
    """Stands still at `point`, to be killed there. A step that was cut short is repeated only at `repeatable`."""
    claims = Claims(url)

    def happen(what: str) -> str:
        with open(effects, "a", encoding="utf-8") as file:
            file.write(f"{what}\n")
        stand(what)
        return "ch_1"

    def stand(here: str) -> None:
        if here == point:
            print(point, flush=True)
            threading.Event().wait()

    def sell(execution: onlyonce.Execution) -> str:
        charge = execution.step("charge", lambda: happen("charge"))
        stand("charged")
        execution.step("mail", lambda: happen("mail"), repeatable=point == "repeatable")
        return charge

    while True:
        # The lease of a run that was killed has to end first.
        sold = outcome(lambda: claims.run("order-7", sell, lease=8.0, wait=10.0, unknown="rerun", attempts_max=1000))
        if sold not in ("InFlight", "OutcomeUnknown", "Fenced"):
            return {"sold": sold}


def request(url: str, key: str, body: str) -> dict[str, Any]:
    headers = {"Authorization": "Bearer sesame"}
    answer = onlyonce.request("POST", f"{url}/pay", body.encode(), headers, key=key, attempts_max=1000, within=300)
    return {"status": answer.status, "replayed": answer.headers.get("idempotency-replayed")}


def derive() -> dict[str, Any]:
    return {"key": onlyonce.derive_key("order-123", "create", {"currency": "USD", "amount": 100})}


if __name__ == "__main__":
    print(json.dumps(globals()[sys.argv[1]](*sys.argv[2:])))
