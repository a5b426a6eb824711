// How fast llama.cpp decodes and reads prompts: a GGUF file of mkgguf.c in the prebuilt binaries of
// node-llama-cpp, which `make bench-peer` installs. Prints JSON lines with the keys of ../model.c.
//
//   node llama.mjs MODULES FILE [--threads N] [--prefill N,..] [--decode N] [--prompt N] [--repeat R]
//                               [--start ID] [--context N] [--load how] [--seconds S] [--realtime] [--log]
//
// MODULES is the folder that has node_modules. --load: "mmap" (default), "lazy", "direct" or "read",
// which are llama.cpp's ways to a file. --seconds: decoding ends then, with fewer tokens. --realtime: once the file
// is open the process gets real-time priority (chrt -f 1), for a machine with other work. Prompts are consecutive ids and decoding goes on so, which is
// what the model's walk (../../tools/mkbig.c) gives; "walk" says whether it did. Timed is llama_decode alone:
// what JavaScript does between tokens, and the choice of a token, are not counted.
import {createRequire} from "node:module";
import {execFileSync} from "node:child_process";
import fs from "node:fs";
import path from "node:path";
import {pathToFileURL} from "node:url";

const [modules, file, ...rest] = process.argv.slice(2);
const option = {threads: "2", prefill: "", decode: "0", prompt: "16", repeat: "1", start: "1000", context: "1024", load: "mmap", seconds: "1e9"};
for (let i = 0; i < rest.length; i++) {
    const name = rest[i].replace(/^--/, "");
    if (name === "log" || name === "realtime") option[name] = true;
    else if (name in option && i + 1 < rest.length) option[name] = rest[++i];
    else throw new Error(`llama.mjs: cannot use ${rest[i]}`);
}
const number = (name) => Number(option[name]);
const ways = {mmap: {useMmap: true}, lazy: {useMmap: true, lazyMode: true}, direct: {useDirectIo: true}, read: {useMmap: false}};
if (!ways[option.load]) throw new Error(`llama.mjs: --load is one of ${Object.keys(ways).join(", ")}`);

const require = createRequire(path.resolve(modules, "package.json"));
const {getLlama} = await import(pathToFileURL(require.resolve("node-llama-cpp")));
const llama = await getLlama({
    gpu: false, build: "never", skipDownload: true, maxThreads: number("threads"), vramPadding: 0,
    logLevel: option.log ? "debug" : "error", logger: (level, text) => process.stderr.write(text.trimEnd() + "\n")
});
const opened = process.hrtime.bigint();
const model = await llama.loadModel({modelPath: path.resolve(file), gpuLayers: 0, ...ways[option.load]});
const context = await model.createContext({
    contextSize: number("context"), batchSize: 512, sequences: 1, threads: number("threads"),
    ignoreMemorySafetyChecks: true, performanceTracking: true
});
context.getSequence();
const native = context._ctx; // llama_decode itself, without the public generator
native.setThreads(number("threads"));
const sampler = new llama._bindings.AddonSampler(model._model);
sampler.applyConfig({temperature: 0});

const say = (what) => fs.writeSync(1, JSON.stringify(what) + "\n");
const bytesRead = () => Number(/read_bytes: (\d+)/.exec(fs.readFileSync("/proc/self/io", "utf8"))[1]);
const median = (x) => [...x].sort((a, b) => a - b)[x.length >> 1];
const vocab = model.fileInfo.metadata.tokenizer.ggml.tokens.length;

say({name: "open", load: option.load, ms: Number(process.hrtime.bigint() - opened) / 1e6, threads: native.getThreads(),
    system: llama.systemInfo, read: bytesRead()});
if (option.realtime) execFileSync("chrt", ["-a", "-f", "-p", "1", String(process.pid)]);

// One batch: the tokens that follow `token`, and the token that comes next.
async function step(position, token, n, sum) {
    const ids = Uint32Array.from({length: n}, (_, i) => (token + i) % vocab);
    const before = [process.hrtime.bigint(), process.cpuUsage(), bytesRead()];
    native.initBatch(n);
    const [at] = native.addToBatch(0, position, ids, Uint32Array.of(n - 1));
    await native.decodeBatch();
    const cpu = process.cpuUsage(before[1]);
    const seconds = Number(process.hrtime.bigint() - before[0]) / 1e9;
    sum.steps.push(seconds);
    sum.seconds += seconds;
    sum.cpu += (cpu.user + cpu.system) / 1e6;
    sum.bytes += bytesRead() - before[2];
    sum.walked += await native.sampleToken(at, sampler) === (token + n) % vocab ? 1 : 0;
}

function report(name, state, rows, prompt, tokens, sum) {
    say({name, state, rows, prompt, tokens, seconds: sum.seconds, tok_s: tokens / sum.seconds, ms_median: 1e3 * median(sum.steps),
        bytes: sum.bytes, mb_per_token: sum.bytes / 1e6 / tokens, cpu_s: sum.cpu, cores: sum.cpu / sum.seconds,
        peak_rss: process.resourceUsage().maxRSS * 1024, walk: sum.walked / sum.steps.length});
}

const nothing = () => ({steps: [], seconds: 0, cpu: 0, bytes: 0, walked: 0});
for (let k = 0; k < number("repeat"); k++) {
    const state = k ? "warm" : "cold";
    for (const n of option.prefill.split(",").filter(Boolean).map(Number)) {
        const sum = nothing();
        native.disposeSequence(0);
        await step(0, number("start"), n, sum);
        report("prefill", state, n, 0, n, sum);
    }
    if (!number("decode")) continue;
    const sum = nothing(), start = number("start"), prompt = number("prompt"), began = Date.now();
    native.disposeSequence(0);
    await step(0, start, prompt, nothing());
    for (let i = 0; i < number("decode") && Date.now() - began < 1e3 * number("seconds"); i++)
        await step(prompt + i, start + prompt + i, 1, sum);
    report("decode", state, 1, prompt, sum.steps.length, sum);
}
if (option.log) native.printTimings();
process.exit(0);
