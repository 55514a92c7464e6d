// How a broken stream goes on. Pure: what arrived goes in, the request for the rest comes out.
//
// A Read goes on at its offset, pinned to the etag of its first message. A List goes on after its last entry. A Search has
// no middle to go on from: it begins again, and only while nothing was handed out; that rule lives in `engine`.
import { clone, create } from "@bufbuild/protobuf";
import * as crc32c from "./crc32c.js";
import {
  ByteRangeSchema,
  type FileInfo,
  FilesService,
  type ListEnd,
  type ListRequest,
  ListRequestSchema,
  type ListResponse,
  type Origin,
  OriginSchema,
  type ReadEnd,
  type ReadRequest,
  ReadRequestSchema,
  type ReadResponse,
  StopReason,
} from "./gen/dormouse/files/v1/files_pb.js";
import { brokenAnswer, changedWhileRead } from "./status.js";

const READ = FilesService.method.read;
const LIST = FilesService.method.list;
/** What the contract gives where no `max_entries` is asked for. */
const MAX_ENTRIES_UNSET = 10_000;

function max(a: bigint, b: bigint): bigint {
  return a > b ? a : b;
}

/**
 * The state of one read over all of its attempts.
 *
 *     opening ──first message──► handing out ──`end`──► ended
 *        ▲                            │ broken
 *        └────── offset, etag ────────┘
 */
export class Reading {
  file: FileInfo | undefined;
  origin: Origin = create(OriginSchema);
  /** Where the first byte lies in the file. */
  offset = 0n;
  /** Bytes handed out so far, over all attempts. */
  given = 0n;
  end: ReadEnd | undefined;
  readonly #asked: ReadRequest;
  // Of the current attempt: where it began, what it sent, and how much of that the caller already has.
  #start = 0n;
  #bytes = 0n;
  #crc = 0;
  #skip = 0n;
  #opening = true;

  constructor(request: ReadRequest) {
    this.#asked = request;
  }

  /** The request of the next attempt. */
  nextRequest(): ReadRequest {
    this.#opening = true;
    this.#bytes = 0n;
    this.#crc = 0;
    this.#skip = 0n;
    if (this.file === undefined || this.given === 0n) {
      // Nothing was handed out: what this attempt finds is what the caller gets.
      this.file = undefined;
      return this.#asked;
    }
    const rest = clone(ReadRequestSchema, this.#asked);
    // The first attempt has checked the revision, at the price of a pass over the file; the etag pins what it saw.
    delete rest.expectedRevision;
    rest.expectedEtag = this.file.etag;
    if (this.#asked.range.case === "lineRange") {
      // Where these lines end is the host's knowledge: ask for them again and skip.
      this.#skip = this.given;
      return rest;
    }
    const length = this.#asked.range.case === "byteRange" ? max(this.#asked.range.value.length, 0n) : 0n;
    const toEnd = max(this.file.sizeBytes - this.offset, 0n);
    const total = length > 0n && length < toEnd ? length : toEnd;
    // With all bytes there and only `end` missing, one byte is asked for again: a length of 0 would mean "all", and an
    // offset at the end of the file is not one that every host answers.
    this.#skip = this.given >= total ? 1n : 0n;
    const value = create(ByteRangeSchema, {
      offset: this.offset + this.given - this.#skip,
      length: length > 0n ? max(length - this.given + this.#skip, 1n) : 0n,
    });
    rest.range = { case: "byteRange", value };
    return rest;
  }

  /** The bytes of a message that the caller does not have yet. */
  take(message: ReadResponse): Uint8Array {
    if (this.#opening) this.#begin(message);
    const { data, end } = message;
    const due = this.#start + this.#bytes;
    // The end of a part without data may come at any offset.
    if (message.offset !== due && (data.length > 0 || end === undefined)) {
      throw brokenAnswer(READ, `data for offset ${message.offset} came where ${due} was due`);
    }
    this.#bytes += BigInt(data.length);
    this.#crc = crc32c.extend(this.#crc, data);
    const known = this.#skip < BigInt(data.length) ? Number(this.#skip) : data.length;
    this.#skip -= BigInt(known);
    if (end !== undefined) {
      this.#check(end);
      this.end = end;
    }
    const fresh = known > 0 ? data.subarray(known) : data;
    this.given += BigInt(fresh.length);
    return fresh;
  }

  #begin(message: ReadResponse): void {
    this.#opening = false;
    if (message.file === undefined) throw brokenAnswer(READ, "the first message names no file");
    if (message.offset < 0n) throw brokenAnswer(READ, `data for offset ${message.offset} is no place in a file`);
    if (this.file === undefined) {
      this.file = message.file;
      this.origin = message.origin ?? create(OriginSchema);
      this.offset = message.offset;
      this.#start = this.offset;
      return;
    }
    if (message.file.etag !== this.file.etag) throw changedWhileRead();
    this.#start = this.offset + this.given - this.#skip;
  }

  #check(end: ReadEnd): void {
    if (end.bytesSent !== this.#bytes) {
      throw brokenAnswer(READ, `${this.#bytes} bytes arrived of ${end.bytesSent} sent`);
    }
    if (end.crc32c !== this.#crc) {
      throw brokenAnswer(READ, `the bytes' CRC-32C is ${this.#crc.toString(16)}, the host sent ${end.crc32c.toString(16)}`);
    }
  }
}

/** The state of one listing over all of its attempts. */
export class Listing {
  origin: Origin = create(OriginSchema);
  end: ListEnd | undefined;
  readonly #asked: ListRequest;
  #last: FileInfo | undefined;
  #given = 0;
  #attempt = 0n;

  constructor(request: ListRequest) {
    this.#asked = request;
  }

  get #full(): number {
    return this.#asked.maxEntries ?? MAX_ENTRIES_UNSET;
  }

  /** The request of the next attempt. */
  nextRequest(): ListRequest {
    this.#attempt = 0n;
    if (this.#last === undefined) return this.#asked;
    const rest = clone(ListRequestSchema, this.#asked);
    rest.startAfter = this.#last.rawPath.length > 0 ? "" : this.#last.path;
    rest.rawStartAfter = this.#last.rawPath;
    // Where all arrived and only the end is missing, one entry more tells whether the listing was cut.
    rest.maxEntries = Math.max(this.#full - this.#given, 1);
    return rest;
  }

  /** The entries of a message. */
  take(message: ListResponse): FileInfo[] {
    if (message.origin !== undefined) this.origin = message.origin;
    this.#attempt += BigInt(message.entries.length);
    const fresh = message.entries.slice(0, Math.max(this.#full - this.#given, 0));
    this.#given += fresh.length;
    this.#last = fresh.at(-1) ?? this.#last;
    const { end } = message;
    if (end !== undefined) {
      if (end.entriesSent !== this.#attempt) {
        throw brokenAnswer(LIST, `${this.#attempt} entries arrived of ${end.entriesSent} sent`);
      }
      // The caller is told of all that it got, over however many attempts.
      end.entriesSent = BigInt(this.#given);
      if (fresh.length < message.entries.length) {
        end.truncated = true;
        end.stopReason = StopReason.MAX_ENTRIES;
      }
      this.end = end;
    }
    return fresh;
  }
}
