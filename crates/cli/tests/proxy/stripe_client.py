"""What a user of Stripe's API writes, against the base URL in the first argument. Prints what it saw as JSON."""

import json
import sys

import stripe

stripe.api_base = sys.argv[1]
stripe.api_key = "sk_test_onlyonce"
stripe.max_network_retries = 3


def create(email, key):
    return stripe.Customer.create(email=email, idempotency_key=key)


def basics():
    first = create("a@shop.test", "key-1")
    again = create("a@shop.test", "key-1")
    try:
        create("b@shop.test", "key-1")
        mismatch = "nothing was raised"
    except stripe.StripeError as error:
        mismatch = type(error).__name__
    return {
        "first": first.id,
        "again": again.id,
        "again_replayed": again.last_response.headers.get("Idempotent-Replayed"),
        "mismatch": mismatch,
        "other_key": create("a@shop.test", "key-2").id,
    }


def create_unnamed():
    """Under the key that the client makes by itself."""
    return {"id": stripe.Customer.create(email="a@shop.test").id}


def drop():
    try:
        return {"error": "none", "id": create("drop@shop.test", "key-1").id}
    except stripe.StripeError as error:
        return {"error": type(error).__name__, "status": error.http_status}


def same():
    return {"id": create("a@shop.test", "key-1").id}


scenarios = {"basics": basics, "create": create_unnamed, "drop": drop, "same": same}
print(json.dumps(scenarios[sys.argv[2]]()))
