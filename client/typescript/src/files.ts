// The files of one workspace.
import { create, type DescMethod } from "@bufbuild/protobuf";
import type { Connection } from "./channel.js";
import { Content, type ContentLike } from "./content.js";
import * as decode from "./decode.js";
import * as engine from "./engine.js";
import * as pb from "./gen/dormouse/files/v1/files_pb.js";
import * as requests from "./requests.js";
import type * as r from "./results.js";
import type { Listing, Reading } from "./resume.js";

const METHODS = pb.FilesService.method;

/** Items as they arrive: `for await`. Leaving the loop early lets the call go. */
export abstract class Stream<Head, Item, End> implements AsyncIterableIterator<Item> {
  readonly #steps: AsyncGenerator<unknown, End>;
  #head: Promise<IteratorResult<unknown, End>> | undefined;
  #end: End | undefined;
  #over = false;

  constructor(steps: AsyncGenerator<unknown, End>) {
    this.#steps = steps;
  }

  /** What is known before the first item. Begins the call, where nothing has. */
  protected async head(): Promise<Head> {
    this.#head ??= this.#steps.next();
    return (await this.#head).value as Head;
  }

  /** The end of the call, once the iteration has ended. */
  protected get ended(): End | undefined {
    return this.#end;
  }

  protected abstract item(item: unknown): Item;

  [Symbol.asyncIterator](): this {
    return this;
  }

  async next(): Promise<IteratorResult<Item, undefined>> {
    await this.head();
    if (this.#over) return { done: true, value: undefined };
    const step = await this.#steps.next();
    if (step.done !== true) return { done: false, value: this.item(step.value) };
    this.#over = true;
    this.#end = step.value;
    return { done: true, value: undefined };
  }

  /** Lets the call go; what is still to come is dropped. */
  async return(): Promise<IteratorResult<Item, undefined>> {
    this.#over = true;
    await this.#steps.return(undefined as End);
    return { done: true, value: undefined };
  }
}

/** The bytes of a read in pieces, none of them empty. The file is whole only when the iteration has ended. */
export class ReadStream extends Stream<Reading, Uint8Array, pb.ReadEnd> {
  /** The file, where its bytes come from, and where the first one lies in the file. */
  async begun(): Promise<{ file: r.FileInfo; origin: r.Origin; offset: number }> {
    const reading = await this.head();
    return {
      file: decode.fileInfo(reading.file, false),
      origin: decode.origin(reading.origin),
      offset: Number(reading.offset),
    };
  }

  /** How it ended, once it has: the whole file's revision where it was asked for, and whether the file changed meanwhile. */
  get summary(): { revision: string | null; line_count: number | null; changed: boolean } | undefined {
    const end = this.ended;
    if (end === undefined) return undefined;
    return {
      revision: end.revision ?? null,
      line_count: end.lineCount === undefined ? null : Number(end.lineCount),
      changed: end.changed,
    };
  }

  protected override item(item: unknown): Uint8Array {
    return item as Uint8Array;
  }
}

/** Matches in path order. */
export class SearchStream extends Stream<{ origin: pb.Origin | undefined }, r.Match, pb.SearchEnd> {
  /** Where the answer comes from. */
  async begun(): Promise<{ origin: r.Origin }> {
    return { origin: decode.origin((await this.head()).origin) };
  }

  /** How the search ended, once it has. */
  get summary(): r.SearchSummary | undefined {
    return this.ended && decode.searchSummary(this.ended);
  }

  protected override item(item: unknown): r.Match {
    return decode.match(item as pb.Match);
  }
}

/** Entries in path order. */
export class ListStream extends Stream<Listing, r.FileInfo, pb.ListEnd> {
  readonly #revision: boolean;

  constructor(steps: AsyncGenerator<unknown, pb.ListEnd>, revision: boolean) {
    super(steps);
    this.#revision = revision;
  }

  /** Where the answer comes from. */
  async begun(): Promise<{ origin: r.Origin }> {
    return { origin: decode.origin((await this.head()).origin) };
  }

  /** How the listing ended, once it has. */
  get summary(): r.ListSummary | undefined {
    return this.ended && decode.listSummary(this.ended);
  }

  protected override item(item: unknown): r.FileInfo {
    return decode.fileInfo(item as pb.FileInfo, this.#revision);
  }
}

/** How a workspace's calls are made, but for what each call says of its own. */
export type Defaults = Omit<engine.Settings, "headers" | "signal">;

/**
 * The files of one workspace. Paths are absolute inside it.
 *
 * `source` says what a read may come from, "workspace" or "disk"; left out, the disk for a suspended workspace, else the
 * running workspace.
 */
export class Files {
  readonly #connection: Connection;
  readonly #workspace: string;
  readonly #defaults: Defaults;

  constructor(connection: Connection, workspace: string, defaults: Defaults) {
    this.#connection = connection;
    this.#workspace = workspace;
    this.#defaults = defaults;
  }

  #call(method: DescMethod, options: requests.CallOptions): engine.Call {
    return new engine.Call(method, this.#workspace, {
      ...this.#defaults,
      timeoutMs: options.timeoutMs ?? this.#defaults.timeoutMs,
      signal: options.signal,
      headers: this.#connection.headers,
    });
  }

  get #rpc(): Connection["files"] {
    return this.#connection.files;
  }

  /** What this host can do for this workspace. */
  async capabilities(options: requests.CallOptions = {}): Promise<r.Capabilities> {
    const call = this.#call(METHODS.getCapabilities, options);
    const send = this.#rpc.getCapabilities;
    const request = create(pb.GetCapabilitiesRequestSchema, { workspace: this.#workspace });
    return decode.capabilities(await engine.unary(call, pb.GetCapabilitiesRequestSchema, request, send));
  }

  /** Metadata of one file or directory; with `revision`, the SHA-256 of a file's content too. */
  async stat(path: requests.PathLike, options: requests.StatOptions & { revision: true }): Promise<r.StatWithRevision>;
  async stat(path: requests.PathLike, options?: requests.StatOptions): Promise<r.StatResult>;
  async stat(path: requests.PathLike, options: requests.StatOptions = {}): Promise<r.StatResult> {
    const request = requests.stat(this.#workspace, path, options);
    const call = this.#call(METHODS.stat, options);
    const answer = await engine.unary(call, pb.StatRequestSchema, request, this.#rpc.stat);
    return decode.stat(answer, options.revision ?? false);
  }

  /** The bytes of a file, or of a range of its bytes or lines. */
  async read(path: requests.PathLike, options: requests.ReadOptions = {}): Promise<Uint8Array> {
    return await joined(this.readChunks(path, options));
  }

  /** The text of a file, or of a range of its lines: UTF-8, anything else is a TypeError. Line ends and a BOM stay. */
  async readText(path: requests.PathLike, options: requests.ReadTextOptions = {}): Promise<string> {
    return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(await this.read(path, options));
  }

  /** As `read`, with the whole file's revision and where the answer came from. */
  async readWithInfo(path: requests.PathLike, options: requests.ReadOptions = {}): Promise<r.ReadResult> {
    const stream = this.readChunks(path, { ...options, revision: true });
    const content = await joined(stream);
    const summary = stream.summary as NonNullable<typeof stream.summary>;
    return { content, ...(await stream.begun()), ...summary };
  }

  /** As `read`, in pieces as they arrive. */
  readChunks(path: requests.PathLike, options: requests.ReadChunksOptions = {}): ReadStream {
    const request = requests.read(this.#workspace, path, options);
    return new ReadStream(engine.read(this.#call(METHODS.read, options), request, this.#rpc.read));
  }

  /** A directory's entries in path order, to a depth (its own entries where `depth` is left out). */
  async list(path: requests.PathLike, options: requests.ListOptions = {}): Promise<r.ListResult> {
    const stream = this.listIter(path, options);
    const entries: r.FileInfo[] = [];
    for await (const entry of stream) entries.push(entry);
    return { entries, ...(stream.summary as r.ListSummary), ...(await stream.begun()) };
  }

  /** As `list`, entry by entry as they arrive. */
  listIter(path: requests.PathLike, options: requests.ListOptions = {}): ListStream {
    const request = requests.list(this.#workspace, path, options);
    const steps = engine.list(this.#call(METHODS.list, options), request, this.#rpc.list);
    return new ListStream(steps, options.revision ?? false);
  }

  /** Lines that match, in path order. `pattern` is literal, or with `regex` an RE2 expression. */
  async search(path: requests.PathLike, pattern: string, options: requests.SearchOptions = {}): Promise<r.SearchResult> {
    const request = requests.search(this.#workspace, path, pattern, options);
    const found = await engine.searchWhole(this.#call(METHODS.search, options), request, this.#rpc.search);
    return {
      matches: found.matches.map(decode.match),
      ...decode.searchSummary(found.end),
      origin: decode.origin(found.origin),
    };
  }

  /** As `search`, match by match as they arrive. It begins again by itself only while none was handed out. */
  searchIter(path: requests.PathLike, pattern: string, options: requests.SearchOptions = {}): SearchStream {
    const request = requests.search(this.#workspace, path, pattern, options);
    return new SearchStream(engine.searchPieces(this.#call(METHODS.search, options), request, this.#rpc.search));
  }

  /**
   * Replaces text in a file (`edits`: all or none, in order), or its whole `content`: atomically, durably, and once however
   * often the answer is lost. With `expectedRevision` only that revision is changed; "absent" creates.
   */
  async patch(options: requests.PatchArguments): Promise<r.PatchResult> {
    const request = requests.patch(this.#workspace, options);
    const call = this.#call(METHODS.patch, options);
    return decode.patch(await engine.unary(call, pb.PatchRequestSchema, request, this.#rpc.patch));
  }

  /**
   * Writes a file of any size. Nothing is visible under the path before the whole is durable. Pieces that come once, such
   * as a Node stream, get one attempt; a function that gives them anew gets as many as bytes do.
   */
  async write(path: requests.PathLike, content: ContentLike, options: requests.WriteOptions = {}): Promise<r.WriteResult> {
    const source = new Content(content);
    const start = requests.write(this.#workspace, path, source.revision, options);
    return decode.write(await engine.write(this.#call(METHODS.write, options), start, source, this.#rpc.write));
  }

  /** Removes a file or an empty directory; with `recursive`, a whole directory. */
  async remove(path: requests.PathLike, options: requests.RemoveOptions = {}): Promise<r.RemoveResult> {
    const request = requests.remove(this.#workspace, path, options);
    const call = this.#call(METHODS.remove, options);
    return decode.remove(await engine.unary(call, pb.RemoveRequestSchema, request, this.#rpc.remove));
  }

  /** Renames a file or directory. Without `replace` an existing file at the new path refuses it. */
  async move(path: requests.PathLike, newPath: requests.PathLike, options: requests.MoveOptions = {}): Promise<r.MoveResult> {
    const request = requests.move(this.#workspace, path, newPath, options);
    const call = this.#call(METHODS.move, options);
    return decode.moved(await engine.unary(call, pb.MoveRequestSchema, request, this.#rpc.move));
  }

  /** Makes a directory. */
  async makeDirectory(path: requests.PathLike, options: requests.MakeDirectoryOptions = {}): Promise<r.MoveResult> {
    const request = requests.makeDirectory(this.#workspace, path, options);
    const call = this.#call(METHODS.makeDirectory, options);
    return decode.moved(await engine.unary(call, pb.MakeDirectoryRequestSchema, request, this.#rpc.makeDirectory));
  }
}

async function joined(stream: ReadStream): Promise<Uint8Array> {
  const pieces: Uint8Array[] = [];
  let size = 0;
  for await (const piece of stream) {
    pieces.push(piece);
    size += piece.length;
  }
  const whole = new Uint8Array(size);
  let at = 0;
  for (const piece of pieces) {
    whole.set(piece, at);
    at += piece.length;
  }
  return whole;
}
