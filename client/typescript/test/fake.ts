// An agent that answers by a script: what each call of a method gets, in order; what it was asked is kept.
import assert from "node:assert/strict";
import { createServer, type Http2Server, type ServerHttp2Session } from "node:http2";
import type { AddressInfo } from "node:net";
import { type DescMessage, create, type MessageInitShape } from "@bufbuild/protobuf";
import { Code, ConnectError, type HandlerContext } from "@connectrpc/connect";
import { connectNodeAdapter } from "@connectrpc/connect-node";
import { FilesService } from "../src/gen/dormouse/files/v1/files_pb.js";
import { HostService } from "../src/gen/dormouse/host/v1/host_pb.js";
import { ErrorInfoSchema, RequestInfoSchema, RetryInfoSchema } from "../src/gen/google/rpc/error_details_pb.js";

/** The connection is cut, as if the host's power were. */
export const CUT = Symbol("cut");

/** What a call gets: a message, messages, an error, a cut, or what a function of the request gives. */
// eslint-disable-next-line @typescript-eslint/no-explicit-any
export type Behaviour = any;

interface RefusalOptions {
  domain?: string;
  message?: string;
  retryAfterMs?: number;
  pushback?: string;
  requestId?: string;
}

/** A status, with the details of the contract unless it is bare. */
export function refusal(code: Code, reason = "", metadata: Record<string, string> = {}, options: RefusalOptions = {}): ConnectError {
  const details: { desc: DescMessage; value: MessageInitShape<DescMessage> }[] = [];
  if (reason !== "") {
    const all = { reason: reason.toLowerCase(), ...metadata };
    const value = create(ErrorInfoSchema, { reason, domain: options.domain ?? "dormouse.dev", metadata: all });
    details.push({ desc: ErrorInfoSchema, value });
  }
  if (options.retryAfterMs !== undefined) {
    const retryDelay = {
      seconds: BigInt(Math.floor(options.retryAfterMs / 1000)),
      nanos: (options.retryAfterMs % 1000) * 1_000_000,
    };
    details.push({ desc: RetryInfoSchema, value: create(RetryInfoSchema, { retryDelay }) });
  }
  if (options.requestId !== undefined) {
    details.push({ desc: RequestInfoSchema, value: create(RequestInfoSchema, { requestId: options.requestId }) });
  }
  const trailers = options.pushback === undefined ? {} : { "grpc-retry-pushback-ms": options.pushback };
  return new ConnectError(options.message ?? "the fake says no", code, trailers, details);
}

export function unavailable(reason = "HOST_OVERLOADED", options: RefusalOptions = {}): ConnectError {
  return refusal(Code.Unavailable, reason, { retryable: "true" }, options);
}

export const BARE_UNAVAILABLE = refusal(Code.Unavailable);
export const BARE_UNIMPLEMENTED = refusal(Code.Unimplemented, "", {}, { message: "" });
export const NOT_RUNNING = refusal(Code.FailedPrecondition, "WORKSPACE_NOT_RUNNING", {
  code: "workspace_not_running",
  retryable: "false",
  state: "suspended",
});

/** Serves on loopback until it is closed. */
export class FakeAgent {
  // eslint-disable-next-line @typescript-eslint/no-explicit-any
  readonly asked: { method: string; request: any; headers: Headers }[] = [];
  readonly #script = new Map<string, Behaviour[]>();
  readonly #sessions = new Set<ServerHttp2Session>();
  #server: Http2Server | undefined;
  endpoint = "";

  static async start(): Promise<FakeAgent> {
    const agent = new FakeAgent();
    const adapter = connectNodeAdapter({
      readMaxBytes: 8 << 20,
      routes: (router) => {
        for (const service of [FilesService, HostService]) {
          const implementation: Record<string, unknown> = {};
          for (const method of service.methods) {
            implementation[method.localName] =
              method.methodKind === "server_streaming"
                ? (request: unknown, context: HandlerContext) => agent.#many(method.name, request, context)
                : (request: unknown, context: HandlerContext) => agent.#one(method.name, request, context);
          }
          router.service(service as typeof FilesService, implementation);
        }
      },
    });
    const server = createServer(adapter);
    server.on("session", (session) => {
      agent.#sessions.add(session);
      session.on("close", () => agent.#sessions.delete(session));
      // A cut is what the tests want.
      session.on("error", () => undefined);
    });
    await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
    agent.#server = server;
    agent.endpoint = `tcp:127.0.0.1:${(server.address() as AddressInfo).port}`;
    return agent;
  }

  /** What the next calls of a method get. */
  on(method: string, ...behaviours: Behaviour[]): void {
    this.#script.set(method, [...(this.#script.get(method) ?? []), ...behaviours]);
  }

  /** What a method was asked, attempt by attempt. */
  // eslint-disable-next-line @typescript-eslint/no-explicit-any
  requests(method: string): any[] {
    return this.asked.filter((asked) => asked.method === method).map((asked) => asked.request);
  }

  /** Stops, and sees that the script was played to its end. */
  async close(): Promise<void> {
    this.#cut();
    await new Promise((resolve) => this.#server?.close(resolve));
    const left = [...this.#script].filter(([, rest]) => rest.length > 0).map(([method]) => method);
    assert.deepEqual(left, [], "the script was not played to its end");
  }

  #cut(): void {
    for (const session of this.#sessions) session.destroy();
  }

  async #next(method: string, request: unknown, context: HandlerContext): Promise<Behaviour> {
    const queue = this.#script.get(method) ?? [];
    assert.ok(queue.length > 0, `the script has nothing for ${method}`);
    let behaviour = queue.shift();
    const streamed = Symbol.asyncIterator in (request as object);
    const entry = { method, request, headers: context.requestHeader };
    this.asked.push(entry);
    if (streamed) {
      const messages: unknown[] = [];
      entry.request = messages;
      for await (const message of request as AsyncIterable<unknown>) {
        messages.push(message);
        if (behaviour instanceof ConnectError) break;
      }
    }
    if (typeof behaviour === "function") behaviour = await behaviour(entry.request, context);
    return behaviour;
  }

  async #one(method: string, request: unknown, context: HandlerContext): Promise<unknown> {
    const behaviour = await this.#next(method, request, context);
    if (behaviour === CUT) this.#cut();
    if (behaviour instanceof ConnectError) throw behaviour;
    return behaviour === CUT ? {} : behaviour;
  }

  async *#many(method: string, request: unknown, context: HandlerContext): AsyncGenerator<unknown> {
    const behaviour = await this.#next(method, request, context);
    for (const item of Array.isArray(behaviour) ? behaviour : [behaviour]) {
      if (item instanceof ConnectError) throw item;
      if (item === CUT) {
        // What was sent before is given the time to arrive: a cut drops what is still under way.
        await new Promise((resolve) => setImmediate(resolve));
        this.#cut();
        return;
      }
      yield item;
    }
  }
}
