// Every call from its first attempt to its answer. What is done after a failure is decided in `retry`; how a broken stream
// goes on, in `resume`. The clock and the random numbers are handed in, so that both can be a test's.
import { randomUUID } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";
import { type DescMessage, type DescMethod, type MessageShape, toBinary } from "@bufbuild/protobuf";
import { type CallOptions, Code, ConnectError } from "@connectrpc/connect";
import type { Content } from "./content.js";
import { type DormouseError, RevisionMismatch } from "./errors.js";
import {
  type FileInfo,
  type ListEnd,
  type ListRequest,
  type ListResponse,
  type Match,
  type Origin,
  type ReadEnd,
  type ReadRequest,
  type ReadResponse,
  type SearchEnd,
  type SearchRequest,
  type SearchResponse,
  type WriteRequest,
  type WriteResponse,
  type WriteStart,
} from "./gen/dormouse/files/v1/files_pb.js";
import { effect } from "./methods.js";
import { Listing, Reading } from "./resume.js";
import { decide, type RetryPolicy } from "./retry.js";
import { brokenAnswer, brokenOff, cannotResume, changedWhileRead, deadlinePassed, errorOf, requestTooLarge } from "./status.js";

/** The largest request that a host takes, in bytes of its encoding. */
export const REQUEST_BYTES_MAX = 7 * 1024 * 1024;
/** The contract's bounds of `max_matches`. */
const MATCHES_UNSET = 200;
const MATCHES_MAX = 5_000;
/** The longest time that a timer of Node takes. */
const TIMER_MS_MAX = 2 ** 31 - 1;

/**
 * Called with the workspace's name, at most once in a call; settles once the workspace runs or is about to. Whatever it
 * throws is told. The signal ends with the call.
 */
export type Waker = (workspace: string, signal: AbortSignal) => Promise<unknown> | unknown;

/** How calls are made. */
export interface Settings {
  policy: RetryPolicy;
  timeoutMs: number | undefined;
  attemptTimeoutMs: number | undefined;
  waker: Waker | undefined;
  signal: AbortSignal | undefined;
  headers: Headers;
}

/** An attempt's options, and how its stream is let go. */
interface Begun {
  options: CallOptions;
  release: () => void;
}

/** A time as timers and gRPC take it: whole, and not zero, which would mean none at all. */
function milliseconds(time: number): number {
  return Math.min(Math.max(Math.ceil(time), 1), TIMER_MS_MAX);
}

/** Where a call has its time and its luck from. */
export interface World {
  now(): number;
  random(): number;
}

const REAL: World = { now: () => performance.now(), random: () => Math.random() };

/** The state of one call between its attempts. */
export class Call {
  attempts = 0;
  readonly #deadline: number | undefined;
  #since: number;
  #failed = 0;
  #waker: Waker | undefined;

  constructor(
    readonly method: DescMethod,
    readonly workspace: string,
    readonly settings: Settings,
    readonly world: World = REAL,
  ) {
    this.#since = world.now();
    this.#deadline = settings.timeoutMs === undefined ? undefined : this.#since + settings.timeoutMs;
    this.#waker = settings.waker;
  }

  /** Milliseconds until the caller's deadline. */
  get remainingMs(): number | undefined {
    return this.#deadline === undefined ? undefined : Math.max(this.#deadline - this.world.now(), 0);
  }

  /** Counts an attempt and gives its options, with a way to let its stream go. */
  begin(stream = false): Begun {
    this.settings.signal?.throwIfAborted();
    const remaining = this.remainingMs;
    if (remaining !== undefined && remaining <= 0) throw this.giveUp(deadlinePassed(this.method));
    this.attempts += 1;
    const own = new AbortController();
    const signal = this.settings.signal ? AbortSignal.any([own.signal, this.settings.signal]) : own.signal;
    if (stream) return this.#beginStream(own, signal, remaining);
    const times = [remaining, this.settings.attemptTimeoutMs].filter((time) => time !== undefined);
    const options: CallOptions = { signal, headers: this.settings.headers };
    if (times.length > 0) options.timeoutMs = milliseconds(Math.min(...times));
    return { options, release: () => own.abort() };
  }

  /** The transport's own timer of a stream runs on when the stream is let go before its end: this one does not. */
  #beginStream(own: AbortController, signal: AbortSignal, remaining: number | undefined): Begun {
    if (remaining === undefined) return { options: { signal, headers: this.settings.headers }, release: () => own.abort() };
    const time = milliseconds(remaining);
    const late = new ConnectError("the caller's deadline passed", Code.DeadlineExceeded);
    const timer = setTimeout(() => own.abort(late), time);
    const headers = new Headers(this.settings.headers);
    // At most eight digits.
    headers.set("grpc-timeout", time < 1e8 ? `${time}m` : `${Math.ceil(time / 1000)}S`);
    const release = () => {
      clearTimeout(timer);
      own.abort();
    };
    return { options: { signal, headers }, release };
  }

  /** The call got on: its next failure is the first one. */
  progressed(): void {
    this.#since = this.world.now();
    this.#failed = 0;
  }

  /** Waits, or wakes the workspace, until the next attempt may be made; or throws what failed. */
  async recover(failure: unknown): Promise<void> {
    this.settings.signal?.throwIfAborted();
    const error = errorOf(this.method, failure);
    this.#failed += 1;
    const step = decide(this.settings.policy, effect(this.method), error, {
      failed: this.#failed,
      elapsedMs: this.world.now() - this.#since,
      remainingMs: this.remainingMs,
      canWake: this.#waker !== undefined,
      random: this.world.random(),
    });
    if (step === "stop") throw this.giveUp(error);
    if (step === "wake") {
      await this.#wake(error);
      return;
    }
    await sleep(Math.min(step.again, TIMER_MS_MAX), undefined, this.settings.signal && { signal: this.settings.signal });
  }

  async #wake(error: DormouseError): Promise<void> {
    const waker = this.#waker as Waker;
    this.#waker = undefined;
    const own = new AbortController();
    const signal = this.settings.signal ? AbortSignal.any([own.signal, this.settings.signal]) : own.signal;
    const remaining = this.remainingMs;
    const late = new Error("the caller's deadline passed");
    const timer = remaining === undefined ? undefined : setTimeout(() => own.abort(late), Math.min(remaining, TIMER_MS_MAX));
    try {
      const ended = new Promise<never>((_, reject) => {
        signal.addEventListener("abort", () => reject(signal.reason as Error), { once: true });
      });
      // Nobody may be waiting any more when the signal comes.
      ended.catch(() => undefined);
      await Promise.race([Promise.resolve().then(() => waker(this.workspace, signal)), ended]);
    } catch (cause) {
      this.settings.signal?.throwIfAborted();
      error.wakeFailure = cause instanceof Error ? cause.message : String(cause);
      error.message += ` (and the workspace could not be woken: ${error.wakeFailure})`;
      error.cause = cause;
      throw this.giveUp(error);
    } finally {
      clearTimeout(timer);
    }
    // What follows a wake is a new story: the workspace needs its time to come up.
    this.progressed();
  }

  /** The error as the caller gets it. */
  giveUp(error: DormouseError): DormouseError {
    error.attempts = this.attempts;
    return error;
  }
}

/** A key for a change that has none yet; every attempt carries the same. */
export function idempotencyKey(given: string | undefined): string {
  return given ?? randomUUID();
}

/** A call with one answer. */
export async function unary<I extends DescMessage, O>(
  call: Call,
  schema: I,
  request: MessageShape<I>,
  send: (request: MessageShape<I>, options: CallOptions) => Promise<O>,
): Promise<O> {
  const size = toBinary(schema, request).length;
  if (size > REQUEST_BYTES_MAX) throw requestTooLarge(size, REQUEST_BYTES_MAX);
  for (;;) {
    const { options } = call.begin();
    try {
      return await send(request, options);
    } catch (failure) {
      await call.recover(failure);
    }
  }
}

/** A stream of bytes to one file. A source that cannot be had twice gets one attempt once it was touched. */
export async function write(
  call: Call,
  start: WriteStart,
  content: Content,
  send: (messages: AsyncIterable<WriteRequest>, options: CallOptions) => Promise<WriteResponse>,
): Promise<WriteResponse> {
  for (;;) {
    const { options } = call.begin();
    try {
      return await send(content.messages(start), options);
    } catch (failure) {
      call.settings.signal?.throwIfAborted();
      if (content.failure !== undefined) throw content.failure.cause;
      if (!content.repeatable) throw call.giveUp(errorOf(call.method, failure));
      await call.recover(failure);
    }
  }
}

type Open<Request, Response> = (request: Request, options: CallOptions) => AsyncIterable<Response>;

/** One attempt of a stream: its messages, and a way to let it go. */
class Attempt<Response> {
  readonly #iterator: AsyncIterator<Response>;
  readonly #release: () => void;

  constructor(call: Call, open: (options: CallOptions) => AsyncIterable<Response>) {
    const { options, release } = call.begin(true);
    this.#iterator = open(options)[Symbol.asyncIterator]();
    this.#release = release;
  }

  /** The next message; undefined at the end. */
  async next(): Promise<Response | undefined> {
    const result = await this.#iterator.next();
    return result.done === true ? undefined : result.value;
  }

  release(): void {
    this.#release();
  }
}

/** Yields the `Reading` once its head is known, then pieces of bytes, none of them empty. */
export async function* read(
  call: Call,
  request: ReadRequest,
  open: Open<ReadRequest, ReadResponse>,
): AsyncGenerator<Reading | Uint8Array, ReadEnd> {
  const reading = new Reading(request);
  let attempt: Attempt<ReadResponse> | undefined;
  let told = false;
  try {
    for (;;) {
      let fresh: Uint8Array;
      try {
        attempt ??= new Attempt(call, (options) => open(reading.nextRequest(), options));
        const message = await attempt.next();
        if (message === undefined) throw brokenOff(call.method);
        fresh = reading.take(message);
      } catch (failure) {
        attempt?.release();
        attempt = undefined;
        const error = call.settings.signal?.aborted ? failure : errorOf(call.method, failure);
        if (reading.given > 0n) {
          if (error instanceof RevisionMismatch) throw call.giveUp(changedWhileRead(error));
          if (reading.file?.etag === "") throw call.giveUp(cannotResume(error));
        }
        await call.recover(error);
        continue;
      }
      if (!told) {
        told = true;
        yield reading;
      }
      if (fresh.length > 0) {
        call.progressed();
        yield fresh;
      }
      if (reading.end !== undefined) return reading.end;
    }
  } finally {
    attempt?.release();
  }
}

/** All of a search at once. */
export interface Found {
  origin: Origin | undefined;
  matches: Match[];
  end: SearchEnd;
}

/** All matches at once. One that breaks at any point begins again, since nothing was handed out. */
export async function searchWhole(
  call: Call,
  request: SearchRequest,
  open: Open<SearchRequest, SearchResponse>,
): Promise<Found> {
  for (;;) {
    let attempt: Attempt<SearchResponse> | undefined;
    try {
      attempt = new Attempt(call, (options) => open(request, options));
      const matches: Match[] = [];
      let origin: Origin | undefined;
      for (;;) {
        const message = await attempt.next();
        if (message === undefined) throw brokenOff(call.method);
        origin ??= message.origin;
        bounded(call, request, matches.length + message.matches.length);
        matches.push(...message.matches);
        if (message.end !== undefined) return { origin, matches, end: message.end };
      }
    } catch (failure) {
      await call.recover(failure);
    } finally {
      attempt?.release();
    }
  }
}

/**
 * Yields the origin, then each match. It begins again only before the first match: a second run may find other lines, and
 * half of each is no answer.
 */
export async function* searchPieces(
  call: Call,
  request: SearchRequest,
  open: Open<SearchRequest, SearchResponse>,
): AsyncGenerator<{ origin: Origin | undefined } | Match, SearchEnd> {
  let attempt: Attempt<SearchResponse> | undefined;
  let given = 0;
  let told = false;
  try {
    for (;;) {
      let message: SearchResponse | undefined;
      try {
        attempt ??= new Attempt(call, (options) => open(request, options));
        message = await attempt.next();
        if (message === undefined) throw brokenOff(call.method);
      } catch (failure) {
        attempt?.release();
        attempt = undefined;
        if (given > 0) {
          call.settings.signal?.throwIfAborted();
          throw call.giveUp(errorOf(call.method, failure));
        }
        await call.recover(failure);
        continue;
      }
      bounded(call, request, given + message.matches.length);
      if (!told) {
        told = true;
        yield { origin: message.origin };
      }
      for (const match of message.matches) {
        given += 1;
        yield match;
      }
      if (message.end !== undefined) return message.end;
    }
  } finally {
    attempt?.release();
  }
}

function bounded(call: Call, request: SearchRequest, count: number): void {
  const limit = Math.min(request.maxMatches ?? MATCHES_UNSET, MATCHES_MAX);
  if (count > limit) {
    throw call.giveUp(brokenAnswer(call.method, `more than the ${limit} matches that were asked for`));
  }
}

/** Yields the `Listing` once it is known where the answer comes from, then each entry. */
export async function* list(
  call: Call,
  request: ListRequest,
  open: Open<ListRequest, ListResponse>,
): AsyncGenerator<Listing | FileInfo, ListEnd> {
  const listing = new Listing(request);
  let attempt: Attempt<ListResponse> | undefined;
  let told = false;
  try {
    for (;;) {
      let entries: FileInfo[];
      try {
        attempt ??= new Attempt(call, (options) => open(listing.nextRequest(), options));
        const message = await attempt.next();
        if (message === undefined) throw brokenOff(call.method);
        entries = listing.take(message);
      } catch (failure) {
        attempt?.release();
        attempt = undefined;
        await call.recover(failure);
        continue;
      }
      if (!told) {
        told = true;
        yield listing;
      }
      yield* entries;
      if (entries.length > 0) call.progressed();
      if (listing.end !== undefined) return listing.end;
    }
  } finally {
    attempt?.release();
  }
}
