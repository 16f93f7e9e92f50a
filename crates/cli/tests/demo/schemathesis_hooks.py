"""How schemathesis asks the demo, by ASK_HOW: `plain` (what the document allows and what it does not), `keyed` (the same with
keys that are used again and again), `steered` (keyed, and the payments API is told to fail and to hang up)."""

import os
import random

import schemathesis

HOW = os.environ["ASK_HOW"]
KEYS = [f"pool-{number}" for number in range(5)]
chance = random.Random(int(os.environ["ASK_SEED"]))


@schemathesis.hook
def before_call(context, case, kwargs):
    if case.method.upper() != "POST":
        return
    headers = case.headers
    if HOW != "steered":
        for name in ("Demo-Fail", "Demo-Drop"):
            headers.pop(name, None)
    elif str(headers.get("Demo-Fail")) == "500":
        # The one status that nobody may ever see: so nobody asks for it.
        headers["Demo-Fail"] = "503"
    if HOW != "plain":
        key = chance.choice(KEYS)
        headers["Idempotency-Key"] = chance.choice([key, f'"{key}"'])


@schemathesis.check
def every_server_error_was_asked_for(ctx, response, case):
    status = response.status_code
    if status < 500:
        return
    asked = response.request.headers
    wishes = {str(asked.get("Demo-Fail"))}
    if asked.get("Demo-Drop") is not None:
        wishes.add("502")
    assert status != 500 and str(status) in wishes, f"{status} was not asked for: {dict(asked)}"
