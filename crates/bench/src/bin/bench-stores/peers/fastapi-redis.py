"""FastAPI with an idempotency middleware over redis-py, of the usual shape: GET, SET NX, the handler, SETEX, DEL.

python3 fastapi-redis.py redis://HOST:PORT
"""

import json
import os
import socket
import sys
import threading

import redis.asyncio as redis
import uvicorn
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, PlainTextResponse, Response
from pydantic import BaseModel

app = FastAPI()
# One for each request that is under way: with fewer it refuses what comes beyond.
store = redis.from_url(sys.argv[1], max_connections=1024)
runs = 0


class Payment(BaseModel):
    amount: int
    currency: str
    order: str
    items: int


@app.middleware("http")
async def idempotent(request: Request, call_next):
    key = request.headers.get("idempotency-key")
    if key is None:
        return await call_next(request)
    stored = await store.get(f"idem:{key}")
    if stored is not None:
        answer = json.loads(stored)
        return Response(answer["body"], answer["status"], media_type="application/json")
    if not await store.set(f"lock:{key}", "1", nx=True, ex=30):
        return JSONResponse({"error": "in progress"}, 409)
    try:
        response = await call_next(request)
        body = b"".join([chunk async for chunk in response.body_iterator])
        # A caller that hangs up makes the framework answer 400 before the handler runs: not worth keeping.
        if response.status_code < 300:
            answer = {"status": response.status_code, "body": body.decode()}
            # As SETEX, which redis-py calls deprecated, with a warning at each call.
            await store.set(f"idem:{key}", json.dumps(answer), ex=86400)
    finally:
        await store.delete(f"lock:{key}")
    return Response(body, response.status_code, headers=dict(response.headers))


@app.get("/runs", response_class=PlainTextResponse)
async def count():
    return str(runs)


@app.post("/payments", status_code=201)
async def pay(payment: Payment):
    global runs
    runs += 1
    return {
        "id": "pay_7Qd2xkJ9",
        "amount": payment.amount,
        "currency": payment.currency,
        "status": "succeeded",
        "order": payment.order,
    }


def end_with_input():
    """Whoever started us is gone, perhaps without a word: so are we."""
    sys.stdin.read()
    os._exit(0)


threading.Thread(target=end_with_input, daemon=True).start()
listener = socket.socket()
listener.bind(("127.0.0.1", 0))
print(f"listening on 127.0.0.1:{listener.getsockname()[1]}", flush=True)
config = uvicorn.Config(app, log_level="warning", access_log=False, loop="uvloop", http="httptools")
uvicorn.Server(config).run(sockets=[listener])
