// From a caller's arguments to the wire's messages. What only the caller can have got wrong is refused here, before anything
// is sent, in the contract's words; all else is the host's to judge.
import { create } from "@bufbuild/protobuf";
import { asBytes } from "./content.js";
import { idempotencyKey } from "./engine.js";
import * as pb from "./gen/dormouse/files/v1/files_pb.js";
import { invalid } from "./status.js";

/** A path inside the workspace, absolute. Bytes for a name that is not UTF-8. */
export type PathLike = string | Uint8Array;

/** What a caller lets the host do for a read: only the running workspace, or only the disk. */
export type Source = "workspace" | "disk";

/** Of every call. */
export interface CallOptions {
  /** Milliseconds for the whole call, its retries and waits included; in place of the workspace's. */
  timeoutMs?: number;
  /** Ends the call, which then throws the signal's reason. */
  signal?: AbortSignal;
}

export interface StatOptions extends CallOptions {
  /** Also the SHA-256 of a file's content. */
  revision?: boolean;
  source?: Source;
}

export interface ReadTextOptions extends CallOptions {
  /** 1-based. */
  startLine?: number;
  /** Inclusive. */
  endLine?: number;
  expectedRevision?: string | null;
  source?: Source;
}

export interface ReadOptions extends ReadTextOptions {
  /** In bytes; negative: from the end. */
  offset?: number;
  length?: number;
}

export interface ReadChunksOptions extends ReadOptions {
  /** Also the whole file's revision, in the last message. */
  revision?: boolean;
}

export interface ListOptions extends CallOptions {
  depth?: number;
  include?: readonly string[];
  exclude?: readonly string[];
  maxEntries?: number;
  revision?: boolean;
  source?: Source;
  startAfter?: PathLike;
}

export interface SearchOptions extends CallOptions {
  /** The pattern is an RE2 expression, not literal text. */
  regex?: boolean;
  caseInsensitive?: boolean;
  include?: readonly string[];
  /** Left out: .git and node_modules. An empty list excludes nothing. */
  exclude?: readonly string[];
  /** 0 to 5. */
  contextLines?: number;
  maxMatches?: number;
  maxFileBytes?: number;
  source?: Source;
}

/** Of every change. */
export interface ChangeOptions extends CallOptions {
  /** Only that revision is changed; "absent": the file must not exist. */
  expectedRevision?: string | null;
  /** Left out: a random one. Every attempt carries the same. */
  idempotencyKey?: string;
}

/** One replacement: `oldText` must occur exactly once, unless `replaceAll`. */
export interface Edit {
  oldText: string;
  newText: string;
  replaceAll?: boolean;
}

export interface PatchArguments extends ChangeOptions {
  path: PathLike;
  /** All or none, in order. Exactly one of `edits` and `content`. */
  edits?: readonly Edit[];
  /** The whole new content; creates the file if it is missing. */
  content?: Uint8Array | string;
  /** Of a new file. */
  mode?: number;
  createParents?: boolean;
  /** Checks everything, and changes nothing. */
  validateOnly?: boolean;
}

export interface WriteOptions extends ChangeOptions {
  mode?: number;
  createParents?: boolean;
}

export interface RemoveOptions extends ChangeOptions {
  recursive?: boolean;
}

export interface MoveOptions extends ChangeOptions {
  /** Left out: an existing file at the new path refuses the move. */
  replace?: boolean;
  createParents?: boolean;
}

export interface MakeDirectoryOptions extends CallOptions {
  mode?: number;
  createParents?: boolean;
  idempotencyKey?: string;
}

/** An unpaired surrogate would become U+FFFD on the wire: another name, another text. */
function wellFormed(text: string, field: string): string {
  if (/\p{Surrogate}/u.test(text)) throw invalid(`${field} holds half of a surrogate pair, which is no text`, field);
  return text;
}

function path(name: PathLike, field = "path"): { path: string; rawPath: Uint8Array } {
  if (typeof name === "string") return { path: wellFormed(name, field), rawPath: new Uint8Array() };
  if (name instanceof Uint8Array) return { path: "", rawPath: name };
  throw invalid(`${field} is text or bytes`, field);
}

function integer(value: number, field: string): bigint {
  if (!Number.isSafeInteger(value)) throw invalid(`${field} is a whole number`, field);
  return BigInt(value);
}

function int32(value: number, field: string): number {
  if (!Number.isInteger(value) || Math.abs(value) > 0x7fffffff) throw invalid(`${field} ${value} is out of range`, field);
  return value;
}

function source(name: Source | undefined): pb.ReadSource {
  if (name === undefined) return pb.ReadSource.UNSPECIFIED;
  if (name !== "workspace" && name !== "disk") throw invalid(`source is "workspace" or "disk"`, "source");
  return name === "workspace" ? pb.ReadSource.WORKSPACE : pb.ReadSource.DISK;
}

function globs(list: readonly string[] | undefined, field: string): string[] {
  if (typeof list === "string") throw invalid(`${field} is a list of globs, not one text`, field);
  return [...(list ?? [])].map((glob) => wellFormed(glob, field));
}

function exclude(list: readonly string[] | undefined): pb.GlobList | undefined {
  return list === undefined ? undefined : create(pb.GlobListSchema, { globs: globs(list, "exclude") });
}

/** With proto's optional fields, to be there is to be set. */
function mode(bits: number | undefined): { mode?: number } {
  if (bits === undefined) return {};
  if (!Number.isInteger(bits) || bits < 0 || bits > 0xffffffff) throw invalid(`mode ${bits} is out of range`, "mode");
  return { mode: bits };
}

function revision(expected: string | null | undefined): { expectedRevision?: string } {
  if (expected === null) {
    // What stat of a host without revisions gives. Sent as "unset" it would drop the guard.
    throw invalid(
      "expectedRevision is null: this host gave no revision to hold the change to; leave it out to change whatever is " +
        "there now",
      "expected_revision",
    );
  }
  return expected === undefined ? {} : { expectedRevision: wellFormed(expected, "expected_revision") };
}

export function stat(workspace: string, name: PathLike, options: StatOptions): pb.StatRequest {
  return create(pb.StatRequestSchema, {
    workspace,
    ...path(name),
    includeRevision: options.revision ?? false,
    source: source(options.source),
  });
}

export function read(workspace: string, name: PathLike, options: ReadChunksOptions): pb.ReadRequest {
  const { offset, length, startLine, endLine } = options;
  const request = create(pb.ReadRequestSchema, {
    workspace,
    ...path(name),
    ...revision(options.expectedRevision),
    includeRevision: options.revision ?? false,
    source: source(options.source),
  });
  const bytes = offset !== undefined || length !== undefined;
  const lines = startLine !== undefined || endLine !== undefined;
  if (bytes && lines) throw invalid("a read takes a range of bytes or a range of lines, not both", "range");
  if (length !== undefined && length <= 0) {
    throw invalid(`length ${length}: a range has at least one byte; leave it out for all the rest`, "byte_range.length");
  }
  if (bytes) {
    const value = create(pb.ByteRangeSchema, {
      offset: integer(offset ?? 0, "byte_range.offset"),
      length: integer(length ?? 0, "byte_range.length"),
    });
    request.range = { case: "byteRange", value };
  } else if (lines) {
    const value = create(pb.LineRangeSchema, {
      start: integer(startLine ?? 0, "line_range.start"),
      end: integer(endLine ?? 0, "line_range.end"),
    });
    request.range = { case: "lineRange", value };
  }
  return request;
}

export function list(workspace: string, name: PathLike, options: ListOptions): pb.ListRequest {
  const after = options.startAfter === undefined ? undefined : path(options.startAfter, "start_after");
  const request = create(pb.ListRequestSchema, {
    workspace,
    ...path(name),
    include: globs(options.include, "include"),
    includeRevision: options.revision ?? false,
    source: source(options.source),
    startAfter: after?.path ?? "",
    rawStartAfter: after?.rawPath ?? new Uint8Array(),
  });
  if (options.depth !== undefined) request.depth = int32(options.depth, "depth");
  if (options.maxEntries !== undefined) request.maxEntries = int32(options.maxEntries, "max_entries");
  const excluded = exclude(options.exclude);
  if (excluded !== undefined) request.exclude = excluded;
  return request;
}

export function search(workspace: string, name: PathLike, pattern: string, options: SearchOptions): pb.SearchRequest {
  const request = create(pb.SearchRequestSchema, {
    workspace,
    ...path(name),
    pattern: wellFormed(pattern, "pattern"),
    regex: options.regex ?? false,
    caseInsensitive: options.caseInsensitive ?? false,
    include: globs(options.include, "include"),
    contextLines: int32(options.contextLines ?? 0, "context_lines"),
    source: source(options.source),
  });
  if (options.maxMatches !== undefined) request.maxMatches = int32(options.maxMatches, "max_matches");
  if (options.maxFileBytes !== undefined) request.maxFileBytes = integer(options.maxFileBytes, "max_file_bytes");
  const excluded = exclude(options.exclude);
  if (excluded !== undefined) request.exclude = excluded;
  return request;
}

const EDIT_FIELDS: Record<string, string> = { oldText: "string", newText: "string", replaceAll: "boolean" };

function edit(one: Edit, index: number): pb.Edit {
  const at = `edits[${index}]`;
  if (typeof one !== "object" || one === null) throw invalid(`${at} is no object of oldText and newText`, at);
  for (const [name, value] of Object.entries(one)) {
    const kind = EDIT_FIELDS[name];
    if (kind === undefined) throw invalid(`\`${at}.${name}\`: unknown field`, `${at}.${name}`);
    if (value !== undefined && typeof value !== kind) throw invalid(`\`${at}.${name}\`: a ${kind} is expected`, `${at}.${name}`);
  }
  for (const name of ["oldText", "newText"] as const) {
    if (one[name] === undefined) throw invalid(`\`${at}.${name}\`: missing`, `${at}.${name}`);
  }
  return create(pb.EditSchema, {
    oldText: wellFormed(one.oldText, `${at}.oldText`),
    newText: wellFormed(one.newText, `${at}.newText`),
    replaceAll: one.replaceAll ?? false,
  });
}

export function patch(workspace: string, options: PatchArguments): pb.PatchRequest {
  const { edits, content } = options;
  if ((edits === undefined) === (content === undefined)) {
    throw invalid("a patch takes exactly one of edits and content", "change");
  }
  const request = create(pb.PatchRequestSchema, {
    workspace,
    ...path(options.path),
    ...revision(options.expectedRevision),
    ...mode(options.mode),
    createParents: options.createParents ?? false,
    validateOnly: options.validateOnly ?? false,
    idempotencyKey: idempotencyKey(options.idempotencyKey),
  });
  if (edits !== undefined) {
    if (!Array.isArray(edits)) throw invalid("edits is a list of objects", "edits");
    request.change = { case: "edits", value: create(pb.EditListSchema, { edits: edits.map(edit) }) };
  } else {
    const whole = asBytes(content);
    if (whole === undefined) throw invalid("content of a patch is bytes or text; write takes streams", "content");
    request.change = { case: "content", value: whole };
  }
  return request;
}

export function write(workspace: string, name: PathLike, contentRevision: string | undefined, options: WriteOptions): pb.WriteStart {
  return create(pb.WriteStartSchema, {
    workspace,
    ...path(name),
    ...revision(options.expectedRevision),
    createParents: options.createParents ?? false,
    idempotencyKey: idempotencyKey(options.idempotencyKey),
    ...mode(options.mode),
    ...(contentRevision === undefined ? {} : { contentRevision }),
  });
}

export function remove(workspace: string, name: PathLike, options: RemoveOptions): pb.RemoveRequest {
  return create(pb.RemoveRequestSchema, {
    workspace,
    ...path(name),
    ...revision(options.expectedRevision),
    recursive: options.recursive ?? false,
    idempotencyKey: idempotencyKey(options.idempotencyKey),
  });
}

export function move(workspace: string, name: PathLike, newName: PathLike, options: MoveOptions): pb.MoveRequest {
  const to = path(newName, "new_path");
  return create(pb.MoveRequestSchema, {
    workspace,
    ...path(name),
    ...revision(options.expectedRevision),
    newPath: to.path,
    rawNewPath: to.rawPath,
    replace: options.replace ?? false,
    createParents: options.createParents ?? false,
    idempotencyKey: idempotencyKey(options.idempotencyKey),
  });
}

export function makeDirectory(workspace: string, name: PathLike, options: MakeDirectoryOptions): pb.MakeDirectoryRequest {
  return create(pb.MakeDirectoryRequestSchema, {
    workspace,
    ...path(name),
    createParents: options.createParents ?? false,
    idempotencyKey: idempotencyKey(options.idempotencyKey),
    ...mode(options.mode),
  });
}
