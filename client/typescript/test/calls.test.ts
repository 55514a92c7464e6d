// Calls over real gRPC to a scripted agent: retries, keys, wakes, resumed streams, refusals.
import assert from "node:assert/strict";
import { Readable } from "node:stream";
import { test, type TestContext } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { Code, ConnectError, type HandlerContext } from "@connectrpc/connect";
import { extend } from "../src/crc32c.js";
import { Consistency, FileType, ServedFrom, StopReason } from "../src/gen/dormouse/files/v1/files_pb.js";
import * as dormouse from "../src/index.js";
import { BARE_UNAVAILABLE, BARE_UNIMPLEMENTED, type Behaviour, CUT, FakeAgent, NOT_RUNNING, refusal, unavailable } from "./fake.js";

const QUICK = { backoffMs: 2, backoffMaxMs: 10, transitionMs: 5_000, transitionGapMaxMs: 5 };
const DISK = { servedFrom: ServedFrom.DISK, consistency: Consistency.EXACT, generation: 4n };
const LIVE = { servedFrom: ServedFrom.WORKSPACE, generation: 5n };
const BROKEN = refusal(Code.Unavailable, "", {}, { message: "socket closed" });
const PATCHED = { revision: "1".repeat(64), replacements: 1, durable: true };

const bytes = (text: string) => new TextEncoder().encode(text);
const text = (data: Uint8Array) => new TextDecoder().decode(data);
const info = (size = 0, etag = "e1") => ({ path: "/f", type: FileType.REGULAR, sizeBytes: BigInt(size), mode: 0o644, etag });
const found = (line: number) => ({ path: "/p/a.py", line, column: 3, endColumn: 7, text: "# TODO" });

async function fake(t: TestContext): Promise<{ agent: FakeAgent; files: dormouse.Files; connect: (options?: dormouse.WorkspaceOptions) => dormouse.Files }> {
  const agent = await FakeAgent.start();
  const open: dormouse.Workspace[] = [];
  t.after(async () => {
    for (const workspace of open) workspace.close();
    await agent.close();
  });
  const connect = (options: dormouse.WorkspaceOptions = {}) => {
    const workspace = new dormouse.Workspace("w", { endpoint: agent.endpoint, retry: QUICK, timeoutMs: 20_000, ...options });
    open.push(workspace);
    return workspace.cell().files;
  };
  return { agent, connect, files: connect() };
}

/** A whole answer to a Read of `data`, which lies at `start` in the file. */
function pieces(data: Uint8Array, cuts: number[] = [], place: { start?: number; etag?: string; size?: number } = {}): Behaviour[] {
  const { start = 0, etag = "e1", size = start + data.length } = place;
  const bounds = [0, ...cuts, data.length];
  const messages: Behaviour[] = bounds.slice(1).map((end, at) => ({
    offset: BigInt(start + (bounds[at] as number)),
    data: data.subarray(bounds[at], end),
  }));
  messages[0].file = info(size, etag);
  messages[0].origin = LIVE;
  messages[messages.length - 1].end = { bytesSent: BigInt(data.length), crc32c: extend(0, data) };
  return messages;
}

async function caught<T extends dormouse.DormouseError>(kind: abstract new (...args: never[]) => T, run: () => Promise<unknown>): Promise<T> {
  try {
    await run();
  } catch (error) {
    assert.ok(error instanceof kind, `${String(error)} is no ${kind.name}`);
    return error;
  }
  assert.fail(`no ${kind.name} was thrown`);
}

/** Gives no answer before the caller's deadline. */
async function silent(_: unknown, context: HandlerContext): Promise<never> {
  await new Promise<void>((resolve) => context.signal.addEventListener("abort", () => resolve(), { once: true }));
  throw new ConnectError("the deadline passed here too", Code.DeadlineExceeded);
}

// ---- retries

test("a search that fails twice is one call with three attempts", async (t) => {
  const { agent, files } = await fake(t);
  agent.on("Search", unavailable(), BARE_UNAVAILABLE, { origin: LIVE, matches: [found(7)], end: { filesScanned: 2n } });
  const hits = await files.search("/p", "TODO", { include: ["*.py"], contextLines: 1, caseInsensitive: true });
  assert.deepEqual(Object.keys(hits).sort(), ["files_scanned", "matches", "origin", "skipped", "stop_reason", "truncated"]);
  assert.equal(hits.matches[0]?.line, 7);
  assert.deepEqual(Object.keys(hits.matches[0] ?? {}).sort(), [
    "after", "before", "column", "end_column", "line", "path", "text", "text_clipped",
  ]);
  assert.deepEqual([hits.truncated, hits.stop_reason, hits.files_scanned], [false, "", 2]);
  const asked = agent.requests("Search");
  assert.equal(asked.length, 3);
  assert.deepEqual([asked[2].workspace, asked[2].include, asked[2].contextLines, asked[2].caseInsensitive], ["w", ["*.py"], 1, true]);
  assert.equal(asked[0].exclude, undefined);
});

test("an old host gets one attempt", async (t) => {
  const { agent, files } = await fake(t);
  agent.on("Search", BARE_UNIMPLEMENTED);
  const error = await caught(dormouse.HostFeatureUnavailable, () => files.search("/p", "TODO"));
  assert.deepEqual([error.feature, error.code, error.attempts, error.retryable], ["file_search", "conflict", 1, false]);
  agent.on("Patch", BARE_UNIMPLEMENTED);
  const other = await caught(dormouse.HostFeatureUnavailable, () => files.patch({ path: "/f", content: "x" }));
  assert.equal(other.feature, "file_patch");
  assert.equal(agent.asked.length, 2);
});

test("five attempts are made and no more", async (t) => {
  const { agent, files } = await fake(t);
  agent.on("Stat", ...Array<Behaviour>(5).fill(BARE_UNAVAILABLE));
  const error = await caught(dormouse.DependencyUnavailable, () => files.stat("/f"));
  assert.deepEqual([error.attempts, error.retryable, agent.asked.length], [5, true, 5]);
});

test("a transition is waited out", async (t) => {
  const { agent, files } = await fake(t);
  const moving = Array<Behaviour>(8).fill(unavailable("WORKSPACE_IN_TRANSITION"));
  agent.on("Read", unavailable("OFFLINE_CHANGED"), ...moving, pieces(bytes("abc")));
  const result = await files.readWithInfo("/f");
  assert.deepEqual([text(result.content), result.origin.served_from, result.revision], ["abc", "workspace", null]);
  assert.equal(agent.requests("Read").length, 10);
});

test("the caller's deadline ends the retries", async (t) => {
  const { agent, files } = await fake(t);
  agent.on("Stat", unavailable("HOST_OVERLOADED", { retryAfterMs: 30_000 }));
  const begun = performance.now();
  const error = await caught(dormouse.DependencyUnavailable, () => files.stat("/f", { timeoutMs: 2_000 }));
  assert.ok(performance.now() - begun < 2_000);
  assert.deepEqual([error.attempts, error.retryAfterMs], [1, 30_000]);
});

test("a call that gets no answer ends with its deadline", async (t) => {
  const { agent, files } = await fake(t);
  agent.on("Stat", silent);
  await caught(dormouse.DeadlineExceeded, () => files.stat("/f", { timeoutMs: 200 }));
});

test("a caller's signal ends a call, and its waits", async (t) => {
  const { agent, files } = await fake(t);
  agent.on("Stat", silent);
  const reason = new Error("the user went away");
  await assert.rejects(files.stat("/f", { signal: AbortSignal.abort(reason) }), reason);
  const controller = new AbortController();
  const call = files.stat("/f", { signal: controller.signal });
  await sleep(20);
  controller.abort(reason);
  await assert.rejects(call, reason);
  agent.on("Stat", unavailable("HOST_OVERLOADED", { retryAfterMs: 15_000 }));
  const later = new AbortController();
  const waiting = files.stat("/f", { signal: later.signal });
  await sleep(50);
  later.abort(reason);
  await assert.rejects(waiting);
});

test("a refusal is not sent again", async (t) => {
  const { agent, files } = await fake(t);
  agent.on("Stat", refusal(Code.NotFound, "FILE_NOT_FOUND", { missing: "/f" }, { requestId: "r-17" }));
  const error = await caught(dormouse.NotFound, () => files.stat("/f"));
  assert.deepEqual([error.reason, error.details["missing"], error.requestId], ["file_not_found", "/f", "r-17"]);
});

// ---- changes

test("every attempt of a patch carries the same key, and a lost answer is found again", async (t) => {
  const { agent, files } = await fake(t);
  const applied = new Map<string, object>();
  agent.on(
    "Patch",
    (request: { idempotencyKey: string }) => {
      // Applied, and the connection lost before the answer.
      applied.set(request.idempotencyKey, { ...PATCHED, file: info() });
      return CUT;
    },
    (request: { idempotencyKey: string }) => ({ ...applied.get(request.idempotencyKey), replayed: true }),
  );
  const done = await files.patch({ path: "/f", edits: [{ oldText: "a", newText: "b" }], expectedRevision: "0".repeat(64) });
  assert.deepEqual([done.replayed, done.replacements, done.previous_revision], [true, 1, null]);
  const [first, second] = agent.requests("Patch");
  assert.match(first.idempotencyKey, /^[0-9a-f]{8}-[0-9a-f]{4}-4/);
  assert.equal(first.idempotencyKey, second.idempotencyKey);
  assert.equal(first.expectedRevision, "0".repeat(64));
  assert.equal(applied.size, 1);
});

test("each call has a key of its own unless one is given", async (t) => {
  const { agent, files } = await fake(t);
  agent.on("Move", { file: info() }, { file: info() }, { file: info() });
  await files.move("/a", "/b");
  await files.move("/a", "/b");
  await files.move("/a", "/b", { idempotencyKey: "mine" });
  const keys = agent.requests("Move").map((request) => request.idempotencyKey);
  assert.equal(new Set(keys).size, 3);
  assert.equal(keys[2], "mine");
});

test("an attempt's time-out is tried again with the same key", async (t) => {
  const { agent, connect } = await fake(t);
  agent.on("Remove", silent, { durable: true, replayed: true });
  const done = await connect({ attemptTimeoutMs: 1_500 }).remove("/f");
  assert.deepEqual(done, { previous_revision: null, durable: true, replayed: true });
  const [first, second] = agent.requests("Remove");
  assert.equal(first.idempotencyKey, second.idempotencyKey);
});

test("a patch takes exactly one of edits and content", async (t) => {
  const { agent, files } = await fake(t);
  for (const change of [{}, { edits: [], content: "" }]) {
    const error = await caught(dormouse.InvalidRequest, () => files.patch({ path: "/f", ...change }));
    assert.equal(error.field, "change");
  }
  const edits = [{ oldText: "a", newText: "b" }, { oldText: "a", newTxt: "b" } as unknown as dormouse.Edit];
  const error = await caught(dormouse.InvalidRequest, () => files.patch({ path: "/f", edits }));
  assert.match(error.message, /`edits\[1\]\.newTxt`: unknown field/);
  assert.equal(agent.asked.length, 0);
});

test("a revision that the host did not give drops no guard", async (t) => {
  const { agent, files } = await fake(t);
  agent.on("Stat", { file: info(), origin: LIVE });
  const { revision } = await files.stat("/f", { revision: true });
  assert.equal(revision, null);
  const error = await caught(dormouse.InvalidRequest, () => files.patch({ path: "/f", content: "x", expectedRevision: revision }));
  assert.match(error.message, /gave no revision/);
  assert.equal(agent.requests("Patch").length, 0);
});

test("a request over seven mebibytes is refused here", async (t) => {
  const { agent, files } = await fake(t);
  const error = await caught(dormouse.LimitExceeded, () => files.patch({ path: "/f", content: new Uint8Array(7 << 20) }));
  assert.deepEqual([error.limitBytes, error.reason, error.attempts], [7 << 20, "request_too_large", 0]);
  agent.on("Patch", { ...PATCHED, file: info() });
  await files.patch({ path: "/f", content: new Uint8Array((7 << 20) - 100) });
  assert.equal(agent.requests("Patch").length, 1);
});

// ---- wakes

test("the waker is called exactly once", async (t) => {
  const { agent, connect } = await fake(t);
  const woken: string[] = [];
  const files = connect({ waker: async (name) => void woken.push(name) });
  agent.on("Patch", NOT_RUNNING, unavailable("WORKSPACE_IN_TRANSITION"), { ...PATCHED, file: info() });
  assert.equal((await files.patch({ path: "/f", content: "x" })).durable, true);
  assert.deepEqual(woken, ["w"]);
  assert.equal(new Set(agent.requests("Patch").map((request) => request.idempotencyKey)).size, 1);
  agent.on("Patch", NOT_RUNNING, NOT_RUNNING);
  await caught(dormouse.WorkspaceNotRunning, () => files.patch({ path: "/f", content: "x" }));
  assert.deepEqual(woken, ["w", "w"]);
  for (const reason of ["OFFLINE_UNAVAILABLE", "OFFLINE_BUDGET"]) {
    agent.on("Read", refusal(Code.FailedPrecondition, reason), pieces(bytes("abc")));
    assert.equal(await files.readText("/f"), "abc");
  }
  assert.equal(woken.length, 4);
});

test("without a waker the error is typed; a failed wake tells both causes", async (t) => {
  const { agent, files, connect } = await fake(t);
  agent.on("MakeDirectory", NOT_RUNNING);
  const plain = await caught(dormouse.WorkspaceNotRunning, () => files.makeDirectory("/d"));
  assert.deepEqual([plain.reason, plain.details["state"]], ["workspace_not_running", "suspended"]);
  agent.on("Patch", NOT_RUNNING, NOT_RUNNING);
  const cause = new Error("no quota to start it");
  const broken = connect({
    waker: () => {
      throw cause;
    },
  });
  const error = await caught(dormouse.WorkspaceNotRunning, () => broken.patch({ path: "/f", content: "x" }));
  assert.equal(error.cause, cause);
  assert.match(error.message, /the fake says no.*no quota/);
  const endless = connect({ timeoutMs: 200, waker: () => new Promise(() => undefined) });
  const late = await caught(dormouse.WorkspaceNotRunning, () => endless.patch({ path: "/f", content: "x" }));
  assert.match(late.wakeFailure ?? "", /deadline/);
});

test("the host waker resumes", async (t) => {
  const { agent, connect } = await fake(t);
  agent.on("Patch", NOT_RUNNING, { ...PATCHED, file: info() });
  agent.on("ResumeWorkspace", {});
  const waker = dormouse.hostWaker(agent.endpoint);
  t.after(() => waker.close());
  await connect({ waker }).patch({ path: "/f", content: "x" });
  assert.equal(agent.requests("ResumeWorkspace")[0].name, "w");
});

// ---- reads

for (const broken of [BROKEN, CUT]) {
  test(`a read broken midway (${broken === CUT ? "connection cut" : "status"}) goes on where it broke`, async (t) => {
    const { agent, files } = await fake(t);
    const data = Uint8Array.from({ length: 10_240 }, (_, at) => at % 256);
    // Each attempt gives what its request asks for, a piece of it before the next break.
    const from = (request: { range: { value?: { offset: bigint } } }) => Number(request.range.value?.offset ?? 0n);
    const rest = (request: never, cuts: number[]) => pieces(data.subarray(from(request)), cuts, { start: from(request) });
    agent.on(
      "Read",
      (request: never) => [...rest(request, [4_000, 8_000]).slice(0, 2), broken],
      [BROKEN],
      (request: never) => rest(request, []),
    );
    const result = await files.read("/f", { expectedRevision: "0".repeat(64) });
    assert.deepEqual(result, data);
    const asked = agent.requests("Read");
    assert.equal(asked.length, 3);
    assert.deepEqual([asked[0].expectedRevision, asked[0].expectedEtag], ["0".repeat(64), undefined]);
    if (broken === BROKEN) {
      assert.deepEqual([asked[2].expectedRevision, asked[2].expectedEtag], [undefined, "e1"]);
      assert.deepEqual([asked[2].range.value.offset, asked[2].range.value.length], [8_000n, 0n]);
    }
  });
}

test("a read that lost only its end asks for one byte", async (t) => {
  const { agent, files } = await fake(t);
  const whole = pieces(bytes("abcdef"), [3]);
  delete whole[1].end;
  agent.on("Read", [...whole, BROKEN], pieces(bytes("f"), [], { start: 5 }));
  assert.equal(await files.readText("/f"), "abcdef");
  assert.equal(agent.requests("Read")[1].range.value.offset, 5n);
});

test("a broken range goes on to its own end; broken lines are asked for again and skipped", async (t) => {
  const { agent, files } = await fake(t);
  const whole = pieces(bytes("0123456789"), [4], { start: 90, size: 1000 });
  agent.on("Read", [whole[0], BROKEN], pieces(bytes("456789"), [], { start: 94, size: 1000 }));
  assert.equal(text(await files.read("/f", { offset: 90, length: 10 })), "0123456789");
  const again = agent.requests("Read")[1].range.value;
  assert.deepEqual([again.offset, again.length], [94n, 6n]);
  const lines = bytes("three\nfour\nfive\n");
  const first = pieces(lines, [9], { start: 20, size: 100 });
  agent.on("Read", [first[0], BROKEN], pieces(lines, [6, 12], { start: 20, size: 100 }));
  assert.equal(await files.readText("/f", { startLine: 3, endLine: 5 }), text(lines));
  const last = agent.requests("Read")[3];
  assert.deepEqual([last.range.value.start, last.range.value.end, last.expectedEtag], [3n, 5n, "e1"]);
});

test("a file that changed meanwhile is an error", async (t) => {
  const { agent, files } = await fake(t);
  const half = [pieces(bytes("abcdef"), [3])[0], BROKEN];
  agent.on("Read", half, pieces(bytes("XYZ"), [], { start: 3, etag: "e2" }));
  await caught(dormouse.ChangedWhileRead, () => files.read("/f"));
  agent.on("Read", half, refusal(Code.Aborted, "REVISION_MISMATCH", { expected_etag: "e1", actual_etag: "e2" }));
  await caught(dormouse.ChangedWhileRead, () => files.read("/f"));
  agent.on("Read", [pieces(bytes("abcdef"), [3], { etag: "" })[0], BROKEN]);
  const error = await caught(dormouse.DependencyUnavailable, () => files.read("/f"));
  assert.match(error.message, /no etag/);
});

test("a stream without its end is no whole", async (t) => {
  const { agent, files } = await fake(t);
  agent.on("Read", [pieces(bytes("abcdef"), [3])[0]], pieces(bytes("def"), [], { start: 3 }));
  assert.equal(await files.readText("/f"), "abcdef");
});

test("an answer that contradicts itself is refused", async (t) => {
  const { agent, files } = await fake(t);
  for (const spoil of [
    (whole: Behaviour[]) => (whole[1].offset = 4n),
    (whole: Behaviour[]) => (whole[1].end.bytesSent = 7n),
    (whole: Behaviour[]) => (whole[1].end.crc32c ^= 1),
  ]) {
    const whole = pieces(bytes("abcdef"), [3]);
    spoil(whole);
    whole[1].end.crc32c >>>= 0;
    agent.on("Read", whole);
    const error = await caught(dormouse.DormouseError, () => files.read("/f"));
    assert.match(error.message, /does not hold together/);
  }
});

test("each piece counts as progress, and an empty file reads", async (t) => {
  const { agent, files } = await fake(t);
  for (let at = 0; at < 20; at++) {
    agent.on("Read", [pieces(bytes("x".repeat(21 - at)), [1], { start: at, size: 21 })[0], BROKEN]);
  }
  agent.on("Read", pieces(bytes("x"), [], { start: 20 }), pieces(bytes("")));
  assert.equal(await files.readText("/f"), "x".repeat(21));
  assert.equal((await files.read("/f")).length, 0);
});

test("a stream that is left early lets its call go", async (t) => {
  const { agent, files } = await fake(t);
  let gone = false;
  agent.on("Read", (_: unknown, context: HandlerContext) => {
    context.signal.addEventListener("abort", () => (gone = true));
    const whole = pieces(new Uint8Array(6 << 20), [1 << 20, 2 << 20, 3 << 20, 4 << 20, 5 << 20]);
    return whole;
  });
  for await (const piece of files.readChunks("/f")) {
    assert.equal(piece.length, 1 << 20);
    break;
  }
  while (!gone) await sleep(5);
});

// ---- searches and lists

test("a broken search begins again only where nothing was handed out", async (t) => {
  const { agent, files } = await fake(t);
  const half = { origin: DISK, matches: [found(1)] };
  agent.on("Search", [half, BROKEN], { origin: LIVE, matches: [found(1), found(2)], end: {} });
  const hits = await files.search("/p", "TODO");
  assert.deepEqual(hits.matches.map((match) => match.line), [1, 2]);
  assert.equal(hits.origin.served_from, "workspace");
  agent.on("Search", [BROKEN], [half, BROKEN]);
  const stream = files.searchIter("/p", "TODO");
  assert.deepEqual((await stream.begun()).origin, { served_from: "disk", consistency: "exact", generation: 4 });
  assert.equal((await stream.next()).value?.line, 1);
  await caught(dormouse.DependencyUnavailable, () => stream.next());
  assert.equal(stream.summary, undefined);
  assert.equal(agent.requests("Search").length, 4);
});

test("searchIter gives its summary at the end", async (t) => {
  const { agent, files } = await fake(t);
  agent.on("Search", { matches: [found(1), found(2)], end: { truncated: true, stopReason: StopReason.MAX_MATCHES } });
  const stream = files.searchIter("/p", "TODO", { maxMatches: 2, exclude: [] });
  const lines: number[] = [];
  for await (const match of stream) lines.push(match.line);
  assert.deepEqual([lines, stream.summary?.stop_reason, stream.summary?.truncated], [[1, 2], "max_matches", true]);
  assert.deepEqual(agent.requests("Search")[0].exclude.globs, []);
  agent.on("Search", { matches: [found(1), found(2), found(3)], end: {} });
  const error = await caught(dormouse.DormouseError, () => files.search("/p", "TODO", { maxMatches: 2 }));
  assert.match(error.message, /more than the 2/);
});

test("a broken listing goes on after its last entry", async (t) => {
  const { agent, files } = await fake(t);
  const raw = Uint8Array.of(0x2f, 0x64, 0x2f, 0xff);
  agent.on(
    "List",
    [{ origin: LIVE, entries: [{ path: "/d/a" }, { path: "/d/\ufffd", rawPath: raw }] }, BROKEN],
    [{ entries: [{ path: "/d/z", type: FileType.DIRECTORY }], end: { entriesSent: 1n } }],
  );
  const listed = await files.list("/d", { maxEntries: 10 });
  assert.deepEqual(listed.entries.map((entry) => entry.path), ["/d/a", "/d/\ufffd", "/d/z"]);
  assert.deepEqual([listed.truncated, listed.stop_reason, listed.entries[2]?.type], [false, "", "directory"]);
  const again = agent.requests("List")[1];
  assert.deepEqual([new Uint8Array(again.rawStartAfter), again.startAfter, again.maxEntries], [raw, "", 8]);
});

// ---- writes

function wholeWrite(requests: { message: { case: string; value: Behaviour } }[]): Uint8Array {
  assert.equal(requests[0]?.message.case, "start");
  const last = requests.at(-1)?.message;
  assert.equal(last?.case, "finish");
  const data = Buffer.concat(requests.slice(1, -1).map((request) => request.message.value as Uint8Array));
  assert.deepEqual([last?.value.sizeBytes, last?.value.crc32c], [BigInt(data.length), extend(0, data)]);
  return new Uint8Array(data);
}

const WRITTEN = { revision: "2".repeat(64), bytesWritten: 3n, durable: true };

test("a write streams its content, and is sent again from its start", async (t) => {
  const { agent, files } = await fake(t);
  const data = Uint8Array.from({ length: 1 << 20 }, (_, at) => (at * 7) % 256);
  agent.on("Write", BROKEN, () => BROKEN, { ...WRITTEN, file: info() }, { ...WRITTEN, file: info() });
  const done = await files.write("/f", data, { expectedRevision: "absent", mode: 0o600 });
  assert.deepEqual([done.durable, done.previous_revision], [true, null]);
  const [, lost, last] = agent.requests("Write");
  assert.deepEqual(wholeWrite(lost), data);
  assert.deepEqual(wholeWrite(last), data);
  assert.equal(lost[0].message.value.idempotencyKey, last[0].message.value.idempotencyKey);
  assert.deepEqual([last[0].message.value.expectedRevision, last[0].message.value.mode], ["absent", 0o600]);
  assert.match(last[0].message.value.contentRevision, /^[0-9a-f]{64}$/);
  await files.write("/f", "é");
  assert.equal(text(wholeWrite(agent.requests("Write")[3])), "é");
});

test("a Node stream gets one attempt, a function as many as bytes do", async (t) => {
  const { agent, files } = await fake(t);
  agent.on("Write", () => BROKEN);
  await caught(dormouse.DependencyUnavailable, () => files.write("/f", Readable.from([bytes("abc")])));
  agent.on("Write", { ...WRITTEN, file: info() });
  await files.write("/f", Readable.from([bytes("ab"), bytes("c")]));
  assert.equal(text(wholeWrite(agent.requests("Write")[1])), "abc");
  agent.on("Write", () => BROKEN, { ...WRITTEN, file: info() });
  await files.write("/f", () => [bytes("again")]);
  assert.equal(text(wholeWrite(agent.requests("Write")[3])), "again");
});

test("a source that fails is never a whole, and its own error is told", async (t) => {
  const { agent, files } = await fake(t);
  agent.on("Write", (requests: { message: { case: string } }[]) => {
    assert.equal(requests.at(-1)?.message.case, "data");
    return refusal(Code.InvalidArgument, "INVALID_REQUEST", { field: "finish" });
  });
  const pulled = new Error("the stick was pulled");
  async function* failing(): AsyncGenerator<Uint8Array> {
    yield bytes("abc");
    throw pulled;
  }
  await assert.rejects(files.write("/f", failing()), pulled);
  await assert.rejects(files.write("/f", 3 as never), TypeError);
});

// ---- the rest

test("token and generation go with every call; names that are not UTF-8 go as bytes", async (t) => {
  const { agent, connect } = await fake(t);
  agent.on("Stat", { file: info() }, { file: info() });
  const files = connect({ token: "t0ken", generation: 9 });
  await files.stat(Uint8Array.of(0x2f, 0xff));
  await files.stat("/é ");
  const [first, second] = agent.asked;
  assert.deepEqual([first?.headers.get("authorization"), first?.headers.get("dormouse-generation")], ["Bearer t0ken", "9"]);
  assert.deepEqual([first?.request.path, new Uint8Array(first?.request.rawPath)], ["", Uint8Array.of(0x2f, 0xff)]);
  assert.deepEqual([second?.request.path, second?.request.rawPath.length], ["/é ", 0]);
  await caught(dormouse.InvalidRequest, () => files.stat("/\udcff"));
  assert.throws(() => connect({ token: "a b" }), TypeError);
});

test("a stat has a revision only when asked, and its time to the nanosecond", async (t) => {
  const { agent, files } = await fake(t);
  const file = { ...info(), modifyTime: { seconds: -1n, nanos: 5 }, revision: "3".repeat(64) };
  agent.on("Stat", { file: info(), origin: LIVE }, { file, origin: LIVE });
  assert.ok(!("revision" in (await files.stat("/f"))));
  const answer = await files.stat("/f", { revision: true, source: "disk" });
  assert.deepEqual(
    [answer.revision, answer.type, answer.origin.served_from, answer.modify_time],
    ["3".repeat(64), "regular", "workspace", "1969-12-31T23:59:59.000000005Z"],
  );
});

test("an endpoint that is none is refused at once; a host that is not there is unavailable", async (t) => {
  const { connect } = await fake(t);
  for (const endpoint of ["localhost:80", "ftp://a:1", "http://a", "http://a:0", "tcp:a:99999", "unix:"]) {
    assert.throws(() => connect({ endpoint }), TypeError, endpoint);
  }
  const error = await caught(dormouse.DependencyUnavailable, () => connect({ endpoint: "unix:/nowhere/nobody.sock" }).stat("/f"));
  assert.equal(error.attempts, 5);
  assert.ok(!(error instanceof ConnectError));
});
