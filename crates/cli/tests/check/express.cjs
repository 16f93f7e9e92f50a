// A payments API on express-idempotency, set up as its README says. Prints the port it listens on.
// `node express.cjs memory` keeps records in its in-memory adapter; `… remote` in one that answers after a while, as
// every database does, and that refuses a second record of a key, as a unique index does.
const express = require('express');
const { idempotency, getSharedIdempotencyService } = require('express-idempotency');

const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

// So far away that requests sent at once meet on the way, also on a loaded machine.
const FAR = 500;

class RemoteAdapter {
  constructor() {
    this.records = new Map();
  }
  async findByIdempotencyKey(key) {
    await pause(FAR);
    return this.records.get(key) ?? null;
  }
  async create(record) {
    await pause(FAR);
    if (this.records.has(record.idempotencyKey)) throw new Error('duplicate key');
    this.records.set(record.idempotencyKey, record);
  }
  async update(record) {
    await pause(FAR);
    this.records.set(record.idempotencyKey, record);
  }
  async delete(key) {
    await pause(FAR);
    this.records.delete(key);
  }
}

const options = process.argv[2] === 'remote' ? { dataAdapter: new RemoteAdapter() } : {};
const app = express();
let payments = 0;

app.use(express.json());
app.use('/payments', idempotency(options));
app.get('/payments/count', (request, response) => response.type('text/plain').send(String(payments)));
app.post('/payments', async (request, response) => {
  if (getSharedIdempotencyService().isHit(request)) return;
  if (request.get('demo-slow')) await pause(2000);
  if (request.get('demo-fail')) throw new Error('the bank does not answer');
  payments += 1;
  const id = `pay_${payments}`;
  response.status(201).location(`/payments/${id}`).json({ id, ...request.body });
});

const server = app.listen(0, '127.0.0.1', () => console.log(server.address().port));
