// A workspace on a host, and how to wake one.
import { create } from "@bufbuild/protobuf";
import { Connection, type ConnectionOptions, endpointOrDefault, HOST_ENDPOINT_VARIABLE } from "./channel.js";
import { Call, unary, type Waker } from "./engine.js";
import { type Defaults, Files } from "./files.js";
import { HostService, ResumeWorkspaceRequestSchema } from "./gen/dormouse/host/v1/host_pb.js";
import { DEFAULT_POLICY, type RetryPolicy } from "./retry.js";

/** How a workspace is reached. */
export interface WorkspaceOptions extends ConnectionOptions {
  /** `unix:PATH`, `http://HOST:PORT`, `https://HOST:PORT`; left out, the environment variable DORMOUSE_ENDPOINT. */
  endpoint?: string;
  /** Milliseconds for each whole call, its retries and waits included. Left out: none. */
  timeoutMs?: number;
  /** Milliseconds for one attempt of a call with a single answer. Left out: as long as the call. */
  attemptTimeoutMs?: number;
  retry?: Partial<RetryPolicy>;
  /** Called at most once in a call that needs a running workspace. */
  waker?: Waker;
}

/** A connection to one host, shared by the workspaces made from it. */
export class Client {
  /** @internal */
  readonly connection: Connection;
  /** @internal */
  readonly defaults: Defaults;

  constructor(options: WorkspaceOptions = {}) {
    this.connection = new Connection(endpointOrDefault(options.endpoint), options);
    this.defaults = {
      policy: { ...DEFAULT_POLICY, ...options.retry },
      timeoutMs: options.timeoutMs,
      attemptTimeoutMs: options.attemptTimeoutMs,
      waker: options.waker,
    };
  }

  /** One workspace on this host. It lives as long as this client. */
  workspace(name: string): Workspace {
    return new Workspace(name, this);
  }

  /** Ends every call and lets the connection go. */
  close(): void {
    this.connection.close();
  }
}

/** Where a workspace's files and tools are. */
export interface Cell {
  readonly files: Files;
}

/** One workspace, such as "customer-42/main". */
export class Workspace implements Cell {
  readonly name: string;
  readonly files: Files;
  readonly #client: Client;
  readonly #own: boolean;

  constructor(name: string, options: WorkspaceOptions | Client = {}) {
    this.name = name;
    this.#own = !(options instanceof Client);
    this.#client = options instanceof Client ? options : new Client(options);
    this.files = new Files(this.#client.connection, name, this.#client.defaults);
  }

  /** The workspace's cell: what runs it, and whose files these are. */
  cell(): Cell {
    return this;
  }

  /** Lets the connection go, unless it is a client's. */
  close(): void {
    if (this.#own) this.#client.close();
  }
}

/**
 * A waker that asks the host itself (HostService.ResumeWorkspace), for a host with no control plane above it.
 *
 * `endpoint`: where HostService listens; left out, the environment variable DORMOUSE_HOST_ENDPOINT.
 */
export function hostWaker(endpoint?: string, { timeoutMs = 60_000 } = {}): Waker & { close(): void } {
  const connection = new Connection(endpointOrDefault(endpoint, HOST_ENDPOINT_VARIABLE));
  const method = HostService.method.resumeWorkspace;
  const wake: Waker = async (name, signal) => {
    const settings = {
      policy: DEFAULT_POLICY,
      timeoutMs,
      attemptTimeoutMs: undefined,
      waker: undefined,
      signal,
      headers: connection.headers,
    };
    const request = create(ResumeWorkspaceRequestSchema, { name });
    await unary(new Call(method, name, settings), ResumeWorkspaceRequestSchema, request, connection.host.resumeWorkspace);
  };
  return Object.assign(wake, { close: () => connection.close() });
}
