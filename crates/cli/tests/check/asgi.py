"""A payments API on asgi-idempotency-header, set up as its README says. Prints the port it listens on."""

import asyncio
import socket

import uvicorn
from idempotency_header_middleware import IdempotencyHeaderMiddleware
from idempotency_header_middleware.backends import MemoryBackend
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.responses import JSONResponse, PlainTextResponse
from starlette.routing import Route

payments = 0


async def create(request):
    global payments
    try:
        body = await request.json()
    except ValueError:
        return JSONResponse({"detail": "not JSON"}, 400)
    if "demo-slow" in request.headers:
        await asyncio.sleep(2)
    if "demo-fail" in request.headers:
        raise RuntimeError("the bank does not answer")
    payments += 1
    identity = f"pay_{payments}"
    return JSONResponse({"id": identity, **body}, 201, {"Location": f"/payments/{identity}"})


async def count(request):
    return PlainTextResponse(str(payments))


app = Starlette(
    routes=[
        Route("/payments", create, methods=["POST", "PATCH"]),
        Route("/payments/count", count),
    ],
    middleware=[Middleware(IdempotencyHeaderMiddleware, backend=MemoryBackend())],
)

listener = socket.socket()
listener.bind(("127.0.0.1", 0))
listener.listen()
print(listener.getsockname()[1], flush=True)
uvicorn.Server(uvicorn.Config(app, log_level="critical")).run(sockets=[listener])
