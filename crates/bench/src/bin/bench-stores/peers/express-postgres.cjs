// Express with an idempotency middleware over pg, of the usual shape: insert the key, the handler, store the answer.
// node express-postgres.cjs postgres://USER@HOST:PORT/DATABASE
const express = require('express');
const { Pool } = require('pg');
const { payments } = require('./express.cjs');

// Ten connections, its default. Idle ones stay, so that the server's processor time can be counted.
const pool = new Pool({ connectionString: process.argv[2], idleTimeoutMillis: 0 });
const TABLE = `CREATE TABLE IF NOT EXISTS idempotency_keys (
  key text PRIMARY KEY, status int, body jsonb, created_at timestamptz NOT NULL DEFAULT now())`;

async function idempotent(request, response, next) {
  const key = request.get('Idempotency-Key');
  if (!key) return next();
  const inserted = await pool.query({
    name: 'insert',
    text: 'INSERT INTO idempotency_keys (key) VALUES ($1) ON CONFLICT DO NOTHING',
    values: [key],
  });
  if (inserted.rowCount === 0) {
    const { rows } = await pool.query({
      name: 'select',
      text: 'SELECT status, body FROM idempotency_keys WHERE key = $1',
      values: [key],
    });
    if (!rows[0]?.status) return response.status(409).json({ error: 'in progress' });
    return response.status(rows[0].status).json(rows[0].body);
  }
  const send = response.json.bind(response);
  response.json = (body) => {
    const values = [key, response.statusCode, JSON.stringify(body)];
    const text = 'UPDATE idempotency_keys SET status = $2, body = $3 WHERE key = $1';
    pool.query({ name: 'update', text, values }).then(() => send(body), next);
    return response;
  };
  next();
}

pool.query(TABLE).then(() => payments(express, idempotent));
