"""A payments API that knows nothing of keys: every POST is one more payment. The sidecar in front of it makes that safe.

    LISTEN=127.0.0.1:3000 python3 examples/recipes/payments-sidecar/payments.py
    onlyonce proxy --config examples/recipes/payments-sidecar/onlyonce.toml
    curl -i localhost:8080/v1/payments -H 'Authorization: Bearer me' -H 'Idempotency-Key: order-7' -d '{"amount": 100}'
"""

import json
import os
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

payments = []


class Payments(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        try:
            amount = json.loads(body)["amount"]
        except (ValueError, KeyError, TypeError):
            return self.answer(400, {"error": "an amount is needed"})  # refused: the key is free again
        payments.append(amount)
        self.answer(201, {"payment": len(payments), "amount": amount})

    def do_GET(self):
        self.answer(200, {"payments": len(payments)})

    def answer(self, status, document):
        body = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


if __name__ == "__main__":
    host, port = os.environ.get("LISTEN", "127.0.0.1:3000").rsplit(":", 1)
    server = ThreadingHTTPServer((host, int(port)), Payments)
    print("listening on %s:%d" % server.server_address, flush=True)
    server.serve_forever()
