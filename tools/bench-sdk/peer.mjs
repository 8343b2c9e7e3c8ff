// The official TypeScript SDK reads the stream of the emitter.
import { query } from "@anthropic-ai/claude-agent-sdk";
import { readFileSync } from "node:fs";

const emitter = process.argv[2];
let messages = 0;
let chars = 0;
const begin = performance.now();
let first = 0;
for await (const m of query({
  prompt: "go",
  options: { pathToClaudeCodeExecutable: emitter, env: { ...process.env, BENCH_ROLE: "emit" } },
})) {
  if (messages === 0) first = performance.now();
  messages++;
  if (m.type === "assistant") chars += m.message.content[0].text.length;
}
const end = performance.now();
const rss = /VmHWM:\s+(\d+)/.exec(readFileSync("/proc/self/status", "utf8"))[1];
console.log(JSON.stringify({ messages, chars, seconds: (end - first) / 1000, start: (first - begin) / 1000, rss_kb: Number(rss) }));
