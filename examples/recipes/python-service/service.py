"""A Python service that charges a card once for each order, with the claims API: no sidecar, and any work, not only HTTP.

    onlyonce serve --store file:./onlyonce-data
    PYTHONPATH=clients python3 examples/recipes/python-service/service.py
    curl localhost:3000/charges -d '{"order": "order-7", "amount": 100}'
"""

import json
import os
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from onlyonce import Claims, InFlight, KeyReused, NotExecuted, OutcomeUnknown

claims = Claims(os.environ.get("CLAIMS", "http://127.0.0.1:8090"), token=os.environ.get("ONLYONCE_TOKEN"))
charges = []


# The key is what the operation is, so that every retry makes the same one, also after a crash of the caller.
@claims.idempotent(key=lambda order, amount: f"charge/{order}", payload=lambda order, amount: {"amount": amount})
def charge(order, amount):
    if amount <= 0:
        raise NotExecuted("nothing to charge", corrected=True)  # nothing happened: the order may be charged later
    charges.append(order)  # the call to the bank
    return {"charge": f"ch_{len(charges)}", "order": order}


class Service(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        try:
            self.answer(201, charge(asked["order"], asked["amount"]))
        except NotExecuted as error:
            self.answer(400, {"error": str(error)})
        except KeyReused:
            self.answer(422, {"error": "the order was charged with another amount"})
        except InFlight as error:
            self.answer(409, {"error": "the order is being charged", "retry_after": error.left})
        except OutcomeUnknown as error:
            # An earlier attempt died inside. Somebody looks at the bank and resolves it; nothing is charged again.
            self.answer(409, {"error": str(error)})

    def do_GET(self):
        self.answer(200, {"charges": len(charges)})

    def answer(self, status, document):
        body = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


if __name__ == "__main__":
    host, port = os.environ.get("LISTEN", "127.0.0.1:3000").rsplit(":", 1)
    server = ThreadingHTTPServer((host, int(port)), Service)
    print("listening on %s:%d" % server.server_address, flush=True)
    server.serve_forever()
