// Where a host listens, and the connection to it.
import { connect as dial } from "node:net";
import { resolve } from "node:path";
import type { SecureClientSessionOptions } from "node:http2";
import { type Client as RpcClient, createClient } from "@connectrpc/connect";
import { createGrpcTransport, Http2SessionManager } from "@connectrpc/connect-node";
import { FilesService } from "./gen/dormouse/files/v1/files_pb.js";
import { HostService } from "./gen/dormouse/host/v1/host_pb.js";

export const ENDPOINT_VARIABLE = "DORMOUSE_ENDPOINT";
export const HOST_ENDPOINT_VARIABLE = "DORMOUSE_HOST_ENDPOINT";
const GENERATION_METADATA = "dormouse-generation";

/** The receiver's settings decide the speed of a Read: large frames and windows, in bytes. */
const FRAME_BYTES = 256 * 1024;
const WINDOW_BYTES = 4 * 1024 * 1024;
/** A host's messages have at most 1 MiB of content. */
const ANSWER_BYTES_MAX = 8 * 1024 * 1024;

/** A parsed endpoint. */
export interface Address {
  url: string;
  unixPath: string | undefined;
}

/** `unix:PATH`, `http://HOST:PORT`, `https://HOST:PORT` or `tcp:HOST:PORT`; anything else is a TypeError. */
export function parse(endpoint: string): Address {
  if (endpoint.startsWith("unix:")) {
    const path = endpoint.slice("unix:".length).replace(/^\/\//, "");
    // sockaddr_un.sun_path of unix(7), with its final zero byte.
    if (path === "" || path.includes("\0") || Buffer.byteLength(path) > 107) {
      throw new TypeError(`endpoint ${JSON.stringify(endpoint)}: a Unix socket's path has 1 to 107 bytes and no zero byte`);
    }
    // The authority is only a name in the request's head; a socket has none of its own.
    return { url: "http://localhost", unixPath: resolve(path) };
  }
  const found = /^(?:(https?):\/\/|tcp:(?:\/\/)?)(\[[0-9a-fA-F:.]+\]|[^/?#@:[\]\s]+):([0-9]{1,5})\/?$/.exec(endpoint);
  const port = Number(found?.[3]);
  if (found === null || port < 1 || port > 65535) {
    throw new TypeError(
      `endpoint ${JSON.stringify(endpoint)}: write unix:PATH, http://HOST:PORT, https://HOST:PORT or tcp:HOST:PORT`,
    );
  }
  return { url: `${found[1] ?? "http"}://${found[2]}:${port}`, unixPath: undefined };
}

/** The endpoint given, else the one that the environment names. */
export function endpointOrDefault(endpoint: string | undefined, variable = ENDPOINT_VARIABLE): string {
  const found = endpoint || process.env[variable];
  if (!found) throw new TypeError(`no endpoint: give one, or set ${variable}`);
  return found;
}

/** How a connection is made. */
export interface ConnectionOptions {
  /** Sent with every call, as a bearer token. */
  token?: string | undefined;
  /** The workspace's generation, where the caller knows it. */
  generation?: number | undefined;
  /** The certificates (PEM) that a TLS host is checked against, in place of the system's. */
  rootCertificates?: string | Uint8Array | undefined;
}

/** A connection to one host, dialled at the first call and again whenever it was lost. */
export class Connection {
  readonly files: RpcClient<typeof FilesService>;
  readonly host: RpcClient<typeof HostService>;
  readonly headers: Headers;
  readonly #sessions: Http2SessionManager;

  constructor(endpoint: string, options: ConnectionOptions = {}) {
    const { url, unixPath } = parse(endpoint);
    const session: SecureClientSessionOptions = { settings: { maxFrameSize: FRAME_BYTES, initialWindowSize: WINDOW_BYTES } };
    if (unixPath !== undefined) session.createConnection = () => dial(unixPath);
    if (options.rootCertificates !== undefined) session.ca = Buffer.from(options.rootCertificates);
    this.#sessions = new Http2SessionManager(url, { pingIntervalMs: 30_000, pingTimeoutMs: 20_000 }, session);
    const transport = createGrpcTransport({ baseUrl: url, sessionManager: this.#sessions, readMaxBytes: ANSWER_BYTES_MAX });
    this.files = createClient(FilesService, transport);
    this.host = createClient(HostService, transport);
    this.headers = headers(options.token, options.generation);
  }

  /** Ends every call and lets the connection go. */
  close(): void {
    this.#sessions.abort();
  }
}

function headers(token: string | undefined, generation: number | undefined): Headers {
  const all = new Headers();
  if (token !== undefined) {
    const text = token.trim();
    if (!/^[\x21-\x7e]+$/.test(text)) throw new TypeError("a token is printable ASCII without spaces");
    all.set("authorization", `Bearer ${text}`);
  }
  if (generation !== undefined) all.set(GENERATION_METADATA, String(generation));
  return all;
}
