// The real agent, in a process of its own on a temporary directory. The environment variable DORMOUSED names its binary.
import assert from "node:assert/strict";
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { appendFileSync, closeSync, mkdirSync, mkdtempSync, openSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { createInterface } from "node:readline";
import { Connection } from "../src/channel.js";

/** Milliseconds that it may take to start or to stop. */
const PATIENCE_MS = 30_000;
export const NAME = "customer-42/main";

/** Why there is no real agent to test against; undefined where there is one. */
export function missing(): string | undefined {
  if (process.env["DORMOUSED"]) return undefined;
  const reason = "DORMOUSED is not set: build dormoused and name its path there";
  const collected = process.env["DORMOUSE_SKIPS"];
  if (collected) appendFileSync(collected, `skipped: the TypeScript library against the real agent: ${reason}\n`);
  return reason;
}

// eslint-disable-next-line @typescript-eslint/no-explicit-any
export type Value = any;

/** Serves one workspace from a temporary directory until it is stopped. */
export class RealAgent {
  endpoint = "";
  readonly #place = mkdtempSync(join(tmpdir(), "dormouse-"));
  #process: ChildProcess | undefined;
  #host: Connection | undefined;

  static async start(without: string[]): Promise<RealAgent> {
    const agent = new RealAgent();
    await agent.#start(without);
    return agent;
  }

  async #start(without: string[]): Promise<void> {
    const place = this.#place;
    mkdirSync(join(place, "files"));
    const log = openSync(join(place, "log"), "w");
    const args = ["serve", "--log-format", "json", "--listen", "tcp:127.0.0.1:0", "--host-listen", `unix:${place}/h`];
    args.push("--state-dir", join(place, "agent"), "--workspace", `${NAME}=directory:${place}/files`);
    for (const feature of without) args.push("--disable-feature", feature);
    const child = spawn(process.env["DORMOUSED"] as string, args, { stdio: ["ignore", "pipe", log] });
    closeSync(log);
    this.#process = child;
    const lines = createInterface({ input: child.stdout as NodeJS.ReadableStream });
    const timer = setTimeout(() => child.kill("SIGKILL"), PATIENCE_MS);
    const line = await Promise.race([once(lines, "line").then(([first]) => first as string), once(child, "exit").then(() => "")]);
    clearTimeout(timer);
    assert.notEqual(line, "", `dormoused is not ready: ${this.#log()}`);
    const ready = JSON.parse(line) as { listen: string[] };
    this.endpoint = ready.listen.find((address) => address.startsWith("tcp:")) as string;
    this.#host = new Connection(`unix:${place}/h`);
  }

  #log(): string {
    return readFileSync(join(this.#place, "log"), "utf8");
  }

  /** Suspends or resumes the workspace, as a control plane would. */
  async host(what: "suspend" | "resume"): Promise<void> {
    const client = (this.#host as Connection).host;
    if (what === "suspend") await client.suspendWorkspace({ name: NAME }, { timeoutMs: PATIENCE_MS });
    else await client.resumeWorkspace({ name: NAME }, { timeoutMs: PATIENCE_MS });
  }

  /** Writes into the directory, past the agent. */
  put(path: string, value: Value): void {
    const root = join(this.#place, "files");
    if (value["$raw_name"] !== undefined) {
      writeFileSync(Buffer.concat([Buffer.from(root), Buffer.from(value["$raw_name"], "base64")]), asBytes(value.content));
      return;
    }
    const place = join(root, path);
    mkdirSync(dirname(place), { recursive: true });
    if (value["$link"] !== undefined) symlinkSync(value["$link"], place);
    else if (value["$directory"] !== undefined) mkdirSync(place);
    else writeFileSync(place, asBytes(value));
  }

  /** The socket of its HostService. */
  get hostSocket(): string {
    return join(this.#place, "h");
  }

  /** What a file holds now, past the agent. */
  look(path: string): Buffer {
    return readFileSync(join(this.#place, "files", path));
  }

  /** Stops it as a service manager would. */
  async stop(): Promise<void> {
    this.#host?.close();
    const child = this.#process as ChildProcess;
    const timer = setTimeout(() => child.kill("SIGKILL"), PATIENCE_MS);
    if (child.exitCode === null && child.signalCode === null) {
      child.kill("SIGTERM");
      await once(child, "exit");
    }
    clearTimeout(timer);
    const log = this.#log();
    rmSync(this.#place, { recursive: true, force: true });
    assert.equal(child.exitCode, 0, `dormoused does not stop well: ${log}`);
  }
}

/** The program that stands before an agent and misbehaves by a scenario's script; it lies beside the agent's own. */
export class Double {
  private constructor(
    readonly endpoint: string,
    readonly child: ChildProcess,
    readonly lines: AsyncIterator<string>,
  ) {}

  static async start(plan: Value, agent: RealAgent): Promise<Double> {
    const whole = { ...plan, upstream: agent.endpoint.replace(/^tcp:/, ""), host: agent.hostSocket, workspace: NAME };
    const program = join(dirname(process.env["DORMOUSED"] as string), "dormouse_double");
    const child = spawn(program, [JSON.stringify(whole)], { stdio: ["pipe", "pipe", "inherit"] });
    const lines = createInterface({ input: child.stdout as NodeJS.ReadableStream })[Symbol.asyncIterator]();
    const ready = JSON.parse((await lines.next()).value) as { listen: string };
    return new Double(`tcp:${ready.listen}`, child, lines);
  }

  /** What it was asked. */
  async end(): Promise<Value> {
    this.child.stdin?.end();
    return JSON.parse((await this.lines.next()).value);
  }
}

/** A text, {"$base64": b} or {"$fill": [text, size]} as bytes. */
export function asBytes(value: Value): Uint8Array {
  if (typeof value === "string") return new TextEncoder().encode(value);
  if (value["$base64"] !== undefined) return new Uint8Array(Buffer.from(value["$base64"], "base64"));
  const [text, size] = value["$fill"] as [string, number];
  return new Uint8Array(Buffer.alloc(size, text));
}
