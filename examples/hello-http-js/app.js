// A component of `wasi:http/proxy`: `GET` greets, anything else gets its own body back.

const headers = { 'content-type': 'text/plain; charset=utf-8' };

addEventListener('fetch', (event) => event.respondWith(answer(event.request)));

function answer(request) {
  // A body that is handed on is a stream: it passes through piece by piece.
  const body = request.method === 'GET' ? 'Hello from a component\n' : request.body;
  return new Response(body, { headers });
}
