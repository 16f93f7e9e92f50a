// The application in Express: counts, and answers 201 with a small JSON. It ends when its input does.
exports.payments = (express, idempotent) => {
  let runs = 0;
  const app = express();
  app.use(express.json());
  app.get('/runs', (_, response) => response.type('text/plain').send(String(runs)));
  app.post('/payments', idempotent, (request, response) => {
    runs += 1;
    const { amount, currency, order } = request.body;
    response.status(201).json({ id: 'pay_7Qd2xkJ9', amount, currency, status: 'succeeded', order });
  });
  const server = app.listen(0, '127.0.0.1', () => {
    console.log(`listening on 127.0.0.1:${server.address().port}`);
  });
  process.stdin.on('end', () => process.exit(0)).resume();
};
