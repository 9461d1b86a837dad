// Answers as the benches' other servers do: "pong" to a GET, and the request's own body to a POST.
export default {
  async fetch(request) {
    const body = request.method === "POST" ? await request.arrayBuffer() : "pong\n";
    return new Response(body, { headers: { "Content-Type": "text/plain; charset=utf-8" } });
  },
};
