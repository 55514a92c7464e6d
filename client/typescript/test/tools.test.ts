// The agents' tools against a scripted agent: pins, limits, and what a model is told.
import assert from "node:assert/strict";
import { test, type TestContext } from "node:test";
import { Code } from "@connectrpc/connect";
import { FileType } from "../src/gen/dormouse/files/v1/files_pb.js";
import * as dormouse from "../src/index.js";
import { renderSearch } from "../src/tools.js";
import { BARE_UNIMPLEMENTED, FakeAgent, NOT_RUNNING, refusal } from "./fake.js";

const FILE = { path: "/f", type: FileType.REGULAR, sizeBytes: 1n, revision: "a".repeat(64) };

async function fake(t: TestContext): Promise<{ agent: FakeAgent; tool: (name: string, options?: dormouse.ToolOptions) => dormouse.Tool; workspace: dormouse.Workspace }> {
  const agent = await FakeAgent.start();
  const workspace = new dormouse.Workspace("w", { endpoint: agent.endpoint, timeoutMs: 20_000 });
  t.after(async () => {
    workspace.close();
    await agent.close();
  });
  const tool = (name: string, options: dormouse.ToolOptions = {}) =>
    dormouse.workspaceTools(workspace.cell(), options).find((one) => one.name === name) as dormouse.Tool;
  return { agent, tool, workspace };
}

test("the tools need the files permission, and their schemas are plain", async (t) => {
  const { workspace } = await fake(t);
  const all = dormouse.workspaceTools(workspace);
  assert.deepEqual(all.map((tool) => tool.name), ["search_files", "edit_file"]);
  assert.deepEqual(dormouse.workspaceTools(workspace, { permissions: [] }), []);
  assert.throws(() => dormouse.workspaceTools(workspace, { outputBytes: 10 }), TypeError);
  for (const tool of all) {
    const text = JSON.stringify(tool.inputSchema);
    assert.ok(!/\$ref|\$defs|"null"/.test(text));
    assert.ok("readOnlyHint" in tool.annotations && tool.annotations["openWorldHint"] === false);
  }
});

test("an edit is always pinned, and its revision is the next one's", async (t) => {
  const { agent, tool } = await fake(t);
  agent.on("Stat", { file: FILE });
  agent.on("Patch", { revision: "b".repeat(64) }, { revision: "c".repeat(64) });
  const edit = tool("edit_file");
  const first = await edit.call({ path: "/f", edits: [{ old_text: "x", new_text: "y" }] });
  assert.equal(first.is_error, false);
  const { revision } = JSON.parse(first.text) as { revision: string };
  await edit.call(JSON.stringify({ path: "/f", content: "z", expected_revision: revision }));
  assert.deepEqual(agent.requests("Patch").map((request) => request.expectedRevision), ["a".repeat(64), "b".repeat(64)]);
  assert.equal(agent.requests("Stat").length, 1);
});

test("a change between stat and patch, a missing file and a link are told", async (t) => {
  const { agent, tool } = await fake(t);
  const edit = tool("edit_file");
  agent.on("Stat", { file: FILE });
  agent.on("Patch", refusal(Code.Aborted, "REVISION_MISMATCH", { code: "conflict", actual_revision: "d".repeat(64) }));
  const changed = await edit.call({ path: "/f", content: "z" });
  assert.ok(changed.is_error && changed.text.startsWith("conflict (revision_mismatch): "));
  assert.ok(changed.text.includes(`expected_revision ${"d".repeat(64)}`));
  const missing = refusal(Code.NotFound, "FILE_NOT_FOUND", { code: "not_found", missing: "/g" });
  agent.on("Stat", missing, missing, { file: { path: "/l", type: FileType.SYMLINK, symlinkTarget: "f" } });
  agent.on("Patch", { revision: "b".repeat(64) });
  assert.equal((await edit.call({ path: "/g", content: "z" })).is_error, false);
  assert.equal(agent.requests("Patch")[1].expectedRevision, "absent");
  assert.match((await edit.call({ path: "/g", edits: [{ old_text: "x", new_text: "y" }] })).text, /\/g is missing/);
  assert.match((await edit.call({ path: "/l", content: "z" })).text, /symbolic link to f.*Next: /);
});

test("another way is named where the host is old, and a sleeping workspace is told", async (t) => {
  const { agent, tool } = await fake(t);
  agent.on("Search", BARE_UNIMPLEMENTED, BARE_UNIMPLEMENTED);
  const args = { path: "/", pattern: "x" };
  assert.match((await tool("search_files").call(args)).text, /grep -rn/);
  const alternatives = { file_search: "call run_command with grep" };
  assert.match((await tool("search_files", { alternatives }).call(args)).text, /Next: call run_command with grep\.$/);
  agent.on("Stat", { file: FILE });
  agent.on("Patch", NOT_RUNNING);
  const asleep = await tool("edit_file").call({ path: "/f", content: "z" });
  assert.match(asleep.text, /workspace_not_running.*woken first/);
});

test("whole matches up to the limit, the rest counted", () => {
  const hits = (count: number): dormouse.SearchResult => ({
    matches: Array.from({ length: count }, (_, at) => ({
      path: "/p",
      line: at + 1,
      column: 1,
      end_column: 2,
      text: "é".repeat(40 + (at % 7)),
      text_clipped: false,
      before: [],
      after: [],
    })),
    truncated: true,
    stop_reason: "max_matches",
    files_scanned: 1,
    skipped: { binary: 0, too_large: 0, special: 0, unreadable: 0 },
    origin: { served_from: "disk", consistency: "exact", generation: 1 },
  });
  for (const limit of [1024, 1500, 4096, 64 * 1024]) {
    const text = renderSearch(hits(2000), limit);
    const answer = JSON.parse(text) as { matches: unknown[]; omitted_matches: number };
    const shown = answer.matches.length;
    assert.ok(Buffer.byteLength(text) <= limit && shown > 0 && shown < 2000);
    assert.equal(shown + answer.omitted_matches, 2000);
    // One match more would not have fitted, beside the four digits that the count may take.
    assert.ok(Buffer.byteLength(renderSearch(hits(shown + 1), 1 << 30)) + 3 > limit);
  }
});

test("what is wrong is named, what is meant clearly is taken", async (t) => {
  const { agent, tool } = await fake(t);
  const search = tool("search_files");
  for (const [args, fact] of [
    ["[1]", "`arguments`: an object is expected"],
    ["{", "`arguments`: an object is expected"],
    [{ path: "/", pattern: 3 }, "`pattern`: text is expected"],
    [{ path: "/", pattern: "x", max_matches: 0 }, "`max_matches`: a number from 1 to 5000 is expected"],
    [{ path: "/", pattern: "x", max_matches: 1.5 }, "`max_matches`: a whole number is expected"],
    [{ path: "/", pattern: "x", regex: 1 }, "`regex`: true or false is expected"],
    [{ path: "/", pattern: "x", include: { a: 1 } }, "`include`: a list is expected"],
    [{ path: "/", pattern: "x", include: ["a", 1] }, "`include[1]`: text is expected"],
    [{ path: "/", pattern: "x", include: "[".repeat(100_000) }, "`include`: a list is expected"],
    [JSON.parse('{"path": "/", "pattern": "x", "__proto__": {}}'), "`__proto__`: unknown field"],
  ] as [unknown, string][]) {
    const output = await search.call(args);
    assert.ok(output.is_error && output.text.startsWith(`invalid_argument: ${fact}`), output.text);
  }
  agent.on("Search", { end: {} });
  const output = await search.call({
    path: " /p ",
    pattern: "x",
    context_lines: "2",
    max_matches: 7.0,
    regex: "True",
    include: '["*.py", "*.md"]',
    exclude: [],
    case_insensitive: null,
  });
  assert.equal(output.is_error, false);
  const [asked] = agent.requests("Search");
  assert.deepEqual([asked.path, asked.contextLines, asked.maxMatches, asked.regex], [" /p ", 2, 7, true]);
  assert.deepEqual([asked.include, asked.exclude.globs, asked.caseInsensitive], [["*.py", "*.md"], [], false]);
});
