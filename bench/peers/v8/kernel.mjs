// Runs a kernel in V8 as often as the second argument says. The last line it prints is the time it took to compile.
import { readFileSync } from "node:fs";
import { WASI } from "node:wasi";

const [path, repeat] = process.argv.slice(2);
const bytes = readFileSync(path);
const begin = process.hrtime.bigint();
const module = new WebAssembly.Module(bytes);
const compiled = process.hrtime.bigint();
const wasi = new WASI({ version: "preview1", args: ["kernel", repeat], returnOnExit: true });
const status = wasi.start(new WebAssembly.Instance(module, wasi.getImportObject()));
if (status) process.exit(status);
console.log(`${Number(compiled - begin) / 1e6} ms`);
