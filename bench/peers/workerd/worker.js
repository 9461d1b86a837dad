// Answers as the benches' other servers do: "pong" to a GET, the request's own body to a POST, and to a PUT what
// tests/guests/work.c answers to its query.
function work(rounds) {
  let state = 2463534242 | 0;
  for (let i = 0; i < rounds; i++) {
    state ^= state << 13;
    state ^= state >>> 17;
    state ^= state << 5;
  }
  return (state >>> 0).toString(16).padStart(8, "0") + "\n";
}

export default {
  async fetch(request) {
    let body = "pong\n";
    if (request.method === "POST") body = await request.arrayBuffer();
    else if (request.method === "PUT") body = work(Number(request.url.split("n=")[1]));
    return new Response(body, { headers: { "Content-Type": "text/plain; charset=utf-8" } });
  },
};
