// Express with an idempotency middleware over ioredis, of the usual shape: GET, SET NX, the handler, SETEX, DEL.
// node express-redis.cjs redis://HOST:PORT
const express = require('express');
const Redis = require('ioredis');
const { payments } = require('./express.cjs');

const redis = new (Redis.default ?? Redis)(process.argv[2]);

async function idempotent(request, response, next) {
  const key = request.get('Idempotency-Key');
  if (!key) return next();
  const stored = await redis.get(`idem:${key}`);
  if (stored) {
    const { status, body } = JSON.parse(stored);
    return response.status(status).json(body);
  }
  if (!(await redis.set(`lock:${key}`, '1', 'EX', 30, 'NX'))) {
    return response.status(409).json({ error: 'in progress' });
  }
  const send = response.json.bind(response);
  response.json = (body) => {
    redis
      .setex(`idem:${key}`, 86400, JSON.stringify({ status: response.statusCode, body }))
      .then(() => redis.del(`lock:${key}`))
      .then(() => send(body), next);
    return response;
  };
  next();
}

payments(express, idempotent);
