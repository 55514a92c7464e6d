// The bytes that a write sends: given whole, made anew for each attempt, or coming once.
import { createHash } from "node:crypto";
import { create } from "@bufbuild/protobuf";
import * as crc32c from "./crc32c.js";
import { type WriteRequest, WriteRequestSchema, type WriteStart } from "./gen/dormouse/files/v1/files_pb.js";

/** The largest piece sent, in bytes. */
const PIECE_BYTES = 256 * 1024;

/** Bytes that come in pieces, such as a Node stream. */
export type Pieces = AsyncIterable<Uint8Array> | Iterable<Uint8Array>;

/** What a write takes. Text is sent as UTF-8. A function is called for each attempt; pieces as such get one attempt. */
export type ContentLike = Uint8Array | string | Pieces | (() => Pieces);

/** The bytes of content that is given whole. */
export function asBytes(content: unknown): Uint8Array | undefined {
  if (typeof content === "string") return new TextEncoder().encode(content);
  return content instanceof Uint8Array ? content : undefined;
}

/** A source of bytes, sent again where it can be had again. */
export class Content {
  /** What went wrong while the pieces were had. */
  failure: { cause: unknown } | undefined;
  readonly #whole: Uint8Array | undefined;
  readonly #make: (() => Pieces) | undefined;
  readonly #once: boolean;
  #touched = false;

  constructor(content: ContentLike) {
    this.#whole = asBytes(content);
    this.#once = typeof content !== "function" && this.#whole === undefined;
    if (this.#whole !== undefined) return;
    const pieces = content as Exclude<ContentLike, Uint8Array | string>;
    const iterable = typeof pieces === "object" && pieces !== null && (Symbol.asyncIterator in pieces || Symbol.iterator in pieces);
    if (typeof pieces !== "function" && !iterable) {
      throw new TypeError("content is bytes, text, pieces of bytes, or a function that gives pieces of bytes");
    }
    this.#make = typeof pieces === "function" ? pieces : () => pieces;
  }

  /** SHA-256 of the whole, where it is at hand: a replay is then answered before the data. */
  get revision(): string | undefined {
    return this.#whole && createHash("sha256").update(this.#whole).digest("hex");
  }

  /** Whether another attempt can send the same bytes. */
  get repeatable(): boolean {
    return this.failure === undefined && !(this.#once && this.#touched);
  }

  /** The requests of one attempt. Where the pieces fail, the last request is left out: no host takes that for a whole. */
  async *messages(start: WriteStart): AsyncGenerator<WriteRequest> {
    yield create(WriteRequestSchema, { message: { case: "start", value: start } });
    let size = 0n;
    let crc = 0;
    const pieces = this.#pieces();
    try {
      for (;;) {
        let step: IteratorResult<Uint8Array>;
        try {
          // Only this: what the transport throws into a `yield` is the call's failure, not the pieces'.
          step = await pieces.next();
        } catch (cause) {
          this.failure = { cause };
          return;
        }
        if (step.done === true) break;
        size += BigInt(step.value.length);
        crc = crc32c.extend(crc, step.value);
        yield create(WriteRequestSchema, { message: { case: "data", value: step.value } });
      }
    } finally {
      await pieces.return(undefined);
    }
    yield create(WriteRequestSchema, { message: { case: "finish", value: { sizeBytes: size, crc32c: crc } } });
  }

  async *#pieces(): AsyncGenerator<Uint8Array> {
    if (this.#whole !== undefined) {
      yield* cut(this.#whole);
      return;
    }
    this.#touched = true;
    for await (const piece of (this.#make as () => Pieces)()) {
      if (!(piece instanceof Uint8Array)) throw new TypeError("content comes in pieces of bytes (Uint8Array)");
      yield* cut(piece);
    }
  }
}

function* cut(bytes: Uint8Array): Generator<Uint8Array> {
  for (let begin = 0; begin < bytes.length; begin += PIECE_BYTES) yield bytes.subarray(begin, begin + PIECE_BYTES);
}
