// Answers as the benches' other servers do, each request in one of so many worker threads: "pong" to a GET, and to a PUT what
// tests/guests/work.c answers to its query. Requests for which no thread is free wait in the order of their arrival.
// node threads.js PORT THREADS
"use strict";
const http = require("node:http");
const { Worker, isMainThread, parentPort } = require("node:worker_threads");

function work(rounds) {
  let state = 2463534242 | 0;
  for (let i = 0; i < rounds; i++) {
    state ^= state << 13;
    state ^= state >>> 17;
    state ^= state << 5;
  }
  return (state >>> 0).toString(16).padStart(8, "0") + "\n";
}

function thread() {
  parentPort.on("message", (rounds) => parentPort.postMessage(rounds === null ? "pong\n" : work(rounds)));
}

function main(port, count) {
  const free = [];
  const waiting = [];

  function next(worker) {
    const request = waiting.shift();
    if (request === undefined) return free.push(worker);
    worker.response = request.response;
    worker.postMessage(request.rounds);
  }

  for (let i = 0; i < count; i++) {
    const worker = new Worker(__filename);
    worker.on("message", (body) => {
      const response = worker.response;
      next(worker);
      response.writeHead(200, { "Content-Type": "text/plain; charset=utf-8", "Content-Length": body.length });
      response.end(body);
    });
    free.push(worker);
  }

  const server = http.createServer((request, response) => {
    const rounds = request.method === "PUT" ? Number(request.url.split("n=")[1]) : null;
    waiting.push({ response, rounds });
    if (free.length > 0) next(free.pop());
  });
  server.listen({ host: "127.0.0.1", port, backlog: 4096 });
}

if (isMainThread) main(Number(process.argv[2]), Number(process.argv[3]));
else thread();
