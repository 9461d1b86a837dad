// Answers one request.

addEventListener('fetch', (event) => event.respondWith(answer(event.request)));

async function answer(request) {
  const { pathname, search } = new URL(request.url);
  const body = new Uint8Array(await request.arrayBuffer());
  const name = new TextDecoder().decode(body).trim() || 'world';
  // What is written to the console is the log.
  console.log(`greeted ${name}`);

  const text = `Hello, ${name}!\nYou sent ${request.method} to ${pathname} with the query "${search.slice(1)}" and ${body.length} bytes.\n`;
  return new Response(text, {
    headers: { 'content-type': 'text/plain; charset=utf-8', 'cache-control': 'no-store' },
  });
}
