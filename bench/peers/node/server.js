// Answers as the benches' other servers do: "pong" to a GET, and the request's own body to a POST.
// node server.js PORT
"use strict";
const http = require("node:http");

const pong = Buffer.from("pong\n");

function answer(response, body) {
  response.writeHead(200, { "Content-Type": "text/plain; charset=utf-8", "Content-Length": body.length });
  response.end(body);
}

const server = http.createServer((request, response) => {
  if (request.method !== "POST") return answer(response, pong);
  const pieces = [];
  request.on("data", (piece) => pieces.push(piece));
  request.on("end", () => answer(response, Buffer.concat(pieces)));
});
server.listen({ host: "127.0.0.1", port: Number(process.argv[2]), backlog: 4096 });
