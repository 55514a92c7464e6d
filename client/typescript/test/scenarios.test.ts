// tests/scenarios.json, which every client plays, against the real agent.
import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import * as dormouse from "../src/index.js";
import { asBytes, Double, missing, NAME, RealAgent, type Value } from "./real.js";

interface Step {
  call?: string;
  tool?: string;
  host?: "suspend" | "resume";
  behind?: Record<string, Value>;
  arguments?: Record<string, Value>;
  expect?: Value;
  error?: Record<string, Value>;
  error_text?: string[];
  save?: Record<string, string>;
}

interface Scenario {
  name: string;
  files: Record<string, Value>;
  without?: string[];
  double?: Value;
  asked?: Value;
  waker?: boolean;
  timeout_ms?: number;
  wakes?: number;
  steps: Step[];
}

const SCENARIOS = (
  JSON.parse(readFileSync(new URL("../../../../tests/scenarios.json", import.meta.url), "utf8")) as { scenarios: Scenario[] }
).scenarios;

const sha256 = (data: Uint8Array) => createHash("sha256").update(data).digest("hex");
const camel = (name: string) => name.replace(/_([a-z])/g, (_, letter: string) => letter.toUpperCase());

function camelKeys(value: Record<string, Value>): Record<string, Value> {
  return Object.fromEntries(Object.entries(value).map(([key, member]) => [camel(key), member]));
}

/** Plays the steps of one scenario. */
class Player {
  readonly #saved = new Map<string, Value>();

  constructor(
    readonly agent: RealAgent,
    readonly files: dormouse.Files,
    readonly tools: Map<string, dormouse.Tool>,
  ) {}

  /** A value of the file as an argument, or as what is expected. */
  value(value: Value): Value {
    if (typeof value === "string") return value.replace(/\$\{(\w+)\}/g, (_, name: string) => String(this.#saved.get(name)));
    if (Array.isArray(value)) return value.map((item) => this.value(item));
    if (typeof value !== "object" || value === null) return value;
    if ("$fill" in value || "$base64" in value) return asBytes(value);
    if ("$sha256" in value) return sha256(asBytes(value["$sha256"]));
    return Object.fromEntries(Object.entries(value).map(([key, item]) => [key, this.value(item)]));
  }

  async play(step: Step): Promise<void> {
    if (step.host) await this.agent.host(step.host);
    else if (step.behind) for (const [path, value] of Object.entries(step.behind)) this.agent.put(path, value);
    else if (step.tool) await this.playTool(step);
    else await this.playCall(step);
  }

  async playTool(step: Step): Promise<void> {
    const output = await this.tools.get(step.tool as string)?.call(this.value(step.arguments));
    assert.ok(output);
    if (step.error_text) {
      assert.ok(output.is_error, output.text);
      for (const part of step.error_text) assert.ok(output.text.includes(this.value(part)), `${part} in ${output.text}`);
      return;
    }
    assert.ok(!output.is_error, output.text);
    const answer = JSON.parse(output.text);
    answer["$size"] = Buffer.byteLength(output.text);
    if ("matches" in answer) answer["$total_matches"] = answer.matches.length + answer.omitted_matches;
    this.answered(step, answer);
  }

  async playCall(step: Step): Promise<void> {
    let answer: Value;
    try {
      answer = await this.call(step.call as string, this.value(step.arguments));
    } catch (error) {
      assert.ok(error instanceof dormouse.DormouseError && step.error, String(error));
      this.failed(step.error, error);
      return;
    }
    assert.ok(!step.error, JSON.stringify(answer));
    this.answered(step, answer);
  }

  /** A call by its Python names: what stands first there stands first here, the rest are options. */
  async call(verb: string, args: Record<string, Value>): Promise<Value> {
    const { path, pattern, new_path, content, ...rest } = args;
    const options = camelKeys(rest);
    const { files } = this;
    switch (verb) {
      case "search":
        return await files.search(path, pattern, options);
      case "search_iter":
        return await whole(files.searchIter(path, pattern, options));
      case "list_iter":
        return await whole(files.listIter(path, options));
      case "patch": {
        const edits = (rest["edits"] as Record<string, Value>[] | undefined)?.map(camelKeys) as dormouse.Edit[] | undefined;
        return await files.patch({ path, ...options, ...(content === undefined ? {} : { content }), ...(edits ? { edits } : {}) });
      }
      case "write":
        return await files.write(path, content, options);
      case "move":
        return await files.move(path, new_path, options);
      case "read":
        return plain(await files.read(path, options));
      case "read_text":
        return plain(new TextEncoder().encode(await files.readText(path, options)));
      case "read_with_info": {
        const result = await files.readWithInfo(path, options);
        return { ...result, content: plain(result.content) };
      }
      case "stat":
        return await files.stat(path, options);
      case "list":
        return await files.list(path, options);
      case "remove":
        return await files.remove(path, options);
      default:
        assert.equal(verb, "make_directory");
        return await files.makeDirectory(path, options);
    }
  }

  answered(step: Step, answer: Value): void {
    if (step.expect !== undefined) match(this.value(step.expect), answer, step.call ?? step.tool ?? "");
    for (const [name, member] of Object.entries(step.save ?? {})) this.#saved.set(name, answer[member]);
  }

  failed(expect: Record<string, Value>, error: dormouse.DormouseError): void {
    assert.equal(error.name, expect["class"], String(error));
    const told = error as unknown as Record<string, Value>;
    for (const name of ["reason", "code", "retryable", "feature", "current", "lines"]) {
      if (name in expect) assert.deepEqual(told[name], this.value(expect[name]), name);
    }
    match(this.value(expect["details"] ?? {}), error.details, "details");
  }
}

function plain(data: Uint8Array): Record<string, Value> {
  const told: Record<string, Value> = { size_bytes: data.length, sha256: sha256(data) };
  try {
    told["text"] = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(data);
  } catch {
    // No UTF-8: no text.
  }
  return told;
}

async function whole(stream: dormouse.SearchStream | dormouse.ListStream): Promise<Value> {
  const items: Value[] = [];
  for await (const item of stream) items.push(item);
  return { items, summary: stream.summary, ...(await stream.begun()) };
}

/** Fails, naming the place, where the answer is not what is expected. */
function match(expect: Value, actual: Value, where: string): void {
  if (expect instanceof Uint8Array) {
    assert.deepEqual(new Uint8Array(actual), expect, where);
  } else if (Array.isArray(expect)) {
    assert.ok(Array.isArray(actual) && actual.length === expect.length, `${where}: ${JSON.stringify(actual)}`);
    expect.forEach((value, index) => match(value, actual[index], `${where}[${index}]`));
  } else if (typeof expect === "object" && expect !== null) {
    if ("$length" in expect) assert.equal(actual.length, expect["$length"], where);
    else if ("$most" in expect) assert.ok(actual <= expect["$most"], `${where}: ${actual}`);
    else if ("$pattern" in expect) assert.match(actual, new RegExp(expect["$pattern"]), where);
    else {
      assert.ok(typeof actual === "object" && actual !== null, `${where}: ${JSON.stringify(actual)}`);
      for (const [key, value] of Object.entries<Value>(expect)) {
        if (value?.["$absent"] === true) assert.ok(!(key in actual), `${where}.${key}`);
        else {
          assert.ok(key in actual, `${where}.${key} is missing in ${JSON.stringify(actual)}`);
          match(value, actual[key], `${where}.${key}`);
        }
      }
    }
  } else {
    assert.equal(actual, expect, where);
  }
}

const reason = missing();
for (const scenario of SCENARIOS) {
  test(scenario.name, { skip: reason ?? false }, async () => {
    const agent = await RealAgent.start(scenario.without ?? []);
    try {
      for (const [path, value] of Object.entries(scenario.files)) agent.put(path, value);
      const wakes: string[] = [];
      const waker = async (name: string) => {
        wakes.push(name);
        await agent.host("resume");
      };
      const double = scenario.double ? await Double.start(scenario.double, agent) : undefined;
      const endpoint = double?.endpoint ?? agent.endpoint;
      const workspace = new dormouse.Workspace(NAME, { endpoint, timeoutMs: scenario.timeout_ms ?? 60_000, ...(scenario.waker ? { waker } : {}) });
      try {
        const tools = new Map(dormouse.workspaceTools(workspace).map((tool) => [tool.name, tool]));
        const player = new Player(agent, workspace.cell().files, tools);
        for (const step of scenario.steps) await player.play(step);
        if (scenario.wakes !== undefined) assert.deepEqual(wakes, Array(scenario.wakes).fill(NAME));
        const said = await double?.end();
        if (said) {
          assert.equal(said.left, 0, "the script was not played to its end");
          match(scenario.asked, said.asked, "asked");
        }
      } finally {
        workspace.close();
      }
    } finally {
      await agent.stop();
    }
  });
}
